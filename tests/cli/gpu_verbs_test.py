"""Verbs on a GPU, over a libcuda that has none behind it: kernels are launched and compute nothing, so that all logits are 0.

TILEWRIGHT_FAKE_CUDA is that library; NVRTC compiles the kernels.
"""

import os
import pathlib
import shutil
import subprocess
import unittest

from artifacts_case import ArtifactsCase, nvrtc_is_here
from harness import PATIENCE, TILEWRIGHT

FAKE = os.environ.get('TILEWRIGHT_FAKE_CUDA', '')
#: What the fake driver says it is: newer than any compiler of these tests.
DRIVER = '99000'
TOKENS = ('--tokens', '1,2,3', '-n', 2, '--temp', 0, '--ignore-eos')


class OnAGpu(ArtifactsCase):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / 'driver').mkdir()
        (cls.folder / 'driver' / 'libcuda.so.1').symlink_to(FAKE)
        cls.leave_bundle_behind()
        # The smallest preset whose heads are as wide as those that kernels are made for.
        cls.model = cls.folder / 'model.gguf'
        subprocess.run([TILEWRIGHT, 'synth', '--preset', 'smollm2-135m', '--quant', 'q8_0', '-o', cls.model],
                       check=True, capture_output=True, timeout=PATIENCE)
        # A first run, and a bundle of what it compiled.
        cls.store = cls.on_gpu(TILEWRIGHT_CACHE_DIR=str(cls.folder / 'store'))
        cls.first = cls.command('run', cls.model, *TOKENS, '--device', 'cuda:0')
        cls.bundle = cls.folder / 'model.twb'
        cls.command('cache', 'export', cls.bundle, '--only', 'artifacts')

    @classmethod
    def command(cls, *words):
        return subprocess.run([cls.program, *map(str, words)], check=True, capture_output=True, text=True, timeout=PATIENCE,
                              env=cls.store)

    @classmethod
    def on_gpu(cls, **extra):
        return cls.environment(LD_LIBRARY_PATH=str(cls.folder / 'driver'), FAKE_CUDA_VERSION=DRIVER,
                               FAKE_CUDA_FRESH='0', **extra)

    def setUp(self):
        super().setUp()
        self.env = self.on_gpu(TILEWRIGHT_CACHE_DIR=str(self.cache))

    def test_a_first_run_says_what_was_compiled_and_which_bundle_spares_it(self):
        self.assertRegex(self.first.stderr, r'compiled \d+ kernels in .* s; .*'
                         rf'tilewright bundle build --model {self.model} --arch sm_90a -o FILE\.twb, then --bundle FILE\.twb')
        again = self.ok('run', self.model, *TOKENS, '--device', 'cuda:0', env=self.store)
        self.assertNotIn('compiled', again.err)

    def test_with_the_installed_bundle_a_first_run_compiles_nothing_and_loads_no_compiler(self):
        prefix = self.folder / 'prefix'
        (prefix / 'bin').mkdir(parents=True)
        (prefix / 'share' / 'tilewright').mkdir(parents=True)
        command = pathlib.Path(shutil.copy2(TILEWRIGHT, prefix / 'bin' / 'tilewright'))
        shutil.copy2(self.bundle, prefix / 'share' / 'tilewright' / 'tilewright.twb')
        # The loader tells of every library that it is asked for.
        env = dict(self.env, LD_DEBUG='files', LD_DEBUG_OUTPUT=str(self.folder / 'loaded'))
        run = subprocess.run([command, 'run', self.model, *map(str, TOKENS), '--device', 'cuda:0'], env=env,
                             capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr, '')
        loaded = ''.join(path.read_text(errors='replace') for path in self.folder.glob('loaded*'))
        self.assertIn('libcuda.so.1', loaded)
        self.assertNotIn('nvrtc', loaded)
        self.assertEqual(self.entry_files(), [])

    def test_every_verb_that_takes_a_device_takes_a_gpu(self):
        words = ('--device', 'cuda:0')
        text = self.folder / 'text.txt'
        text.write_text('the time of the day is the time of the night ' * 8)
        run = self.ok('run', self.model, *TOKENS, *words, '--json', env=self.store).json()
        self.assertEqual(run['device'], 'cuda:0')
        self.assertEqual(len(run['generated_tokens']), 2)
        # Kernels that compute nothing leave in the memory of the logits what was there before, which may be no number.
        scored = self.run_cli('perplexity', self.model, '-f', text, '--window', 32, *words, '--json', env=self.store)
        if scored.rc == 0:
            self.assertGreater(scored.json()['tokens'], 15)
        else:
            self.assertIn('the logits are not finite', scored.err)
        bench = self.ok('bench', 'model', self.model, '-p', 8, '-n', 2, '-d', 4, '--repeat', 1, '--profile', *words, '--json',
                        env=self.store).json()
        self.assertIn('NVIDIA H200', bench['device'])
        self.assertEqual([row['test'] for row in bench['rows']], ['pp8 @ d4', 'tg2 @ d4'])
        timed = self.ok('bench', 'op', 'norm', 'rows=1 cols=576 type_in=bf16 type_out=bf16', '--all', '--repeat', 1, *words, '--json',
                        env=self.store).json()
        self.assertEqual([row['shape'] for row in timed['rows']], ['norm rows=1 cols=576 type_in=bf16 type_out=bf16'])
        self.assertTrue(any(one['kernel'].startswith('rmsnorm.') for one in timed['rows'][0]['launches']))
        kernels = self.ok('kernels', *words, '--json', env=self.store).json()
        self.assertTrue(all(kernel['feasible'] for kernel in kernels['kernels']))
        self.assertTrue(any(kernel['kernel'].startswith('attention_split.') for kernel in kernels['kernels']))
        doctor = self.ok('doctor', *words, '--json', env=self.store).json()
        self.assertIn('cuda:0', [finding['what'] for finding in doctor['findings']])
        self.assertGreaterEqual(len(kernels['kernels']), 100)
        explained = self.ok('explain', 'gemm', '--m', 1, '--n', 576, '--k', 576, '--type-a', 'bf16', '--type-b', 'q8_0', '--type-c',
                            'bf16', *words, '--json', env=self.store).json()
        self.assertTrue(explained['chosen'].startswith('gemv_int8.'), explained['chosen'])
        norm = self.ok('explain', 'norm', 'rows=1 cols=576 type_in=bf16 type_out=bf16', *words, '--json', env=self.store).json()
        self.assertTrue(norm['chosen'].startswith('rmsnorm.'), norm['chosen'])

    def test_auto_is_the_gpu_and_says_so(self):
        auto = self.ok('run', self.model, *TOKENS, '--device', 'auto', '--bundle', self.bundle, env=self.env)
        self.assertIn('cuda:0 (NVIDIA H200', auto.err)


if __name__ == '__main__':
    if not nvrtc_is_here() or not pathlib.Path(FAKE).is_file():
        print('needs NVRTC (TILEWRIGHT_NVRTC) and the fake driver (TILEWRIGHT_FAKE_CUDA)')
        raise SystemExit(77)
    unittest.main()
