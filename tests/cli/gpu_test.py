#!/usr/bin/env python3
"""The command on a GPU that is not there: a libcuda without a GPU (tests/device/fake_cuda.h) which fails as it is told.

Everything that may be wrong with a driver, a GPU or its kernels is one clear line and exit 1, or a fallback that is named.
"""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import unittest

from artifacts_case import nvrtc_is_here
from harness import CliTest, PATIENCE, TILEWRIGHT

FAKE_CUDA = os.environ['TILEWRIGHT_FAKE_CUDA']
FAKE_CUBLASLT = os.environ['TILEWRIGHT_FAKE_CUBLASLT']
FAKE_NVML = os.environ['TILEWRIGHT_FAKE_NVML']
H200 = pathlib.Path(__file__).resolve().parents[2] / 'docs/devices/nvidia_h200.json'

#: A problem of every operation, as a Llama pass has them.
PROBLEMS = {
    'norm': 'rows=8 cols=4096 type_in=bf16 type_weight=f32 type_out=bf16',
    'rope': 'rows=8 heads=32 head_dim=128 dims=128 type_in=bf16 type_out=bf16',
    'elementwise': 'function=swiglu rows=8 cols=4096 type_a=bf16 type_b=bf16 type_out=bf16',
    'copy': 'rows=8 cols=4096 type_src=bf16 type_dst=f32',
    'kv_scatter': 'rows=8 kv_heads=8 head_dim=128 type_x=bf16 type_cache=bf16 page_size=64',
    'embedding': 'rows=8 hidden=4096 type_table=q8_0 type_out=bf16',
    'attention': 'rows=1 sequences=1 heads=32 kv_heads=8 head_dim=128 context=4096 page_size=64 type_kv=bf16 type_q=bf16',
}


class GpuTest(CliTest):

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.leave_bundle_behind()
        (cls.folder / 'driver').mkdir()
        (cls.folder / 'driver' / 'libcuda.so.1').symlink_to(FAKE_CUDA)
        # The smallest preset with a head dimension that a GPU's kernels have.
        cls.small = cls.folder / 'small.gguf'
        done = subprocess.run([TILEWRIGHT, 'synth', '--preset', 'smollm2-135m', '--quant', 'q4_0', '-o', cls.small], env=cls.environment(),
                              capture_output=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr

    def fake(self, **extra):
        """With the fake driver, and without cuBLASLt unless `extra` says where it is."""
        path = f'{self.folder / "driver"}:{os.environ.get("LD_LIBRARY_PATH", "")}'
        return self.environment(**{'LD_LIBRARY_PATH': path, 'TILEWRIGHT_CUBLASLT': str(self.folder / 'none'), **extra})

    def sound(self, **extra):
        """The same with memory that begins as zeros: kernels that compute nothing give logits of 0, not NaN."""
        return self.fake(FAKE_CUDA_FRESH='0', **extra)

    def run_words(self, device='cuda:0'):
        return ['run', self.small, '--tokens', '1,2,3', '-n', 3, '--temp', 0, '--device', device]

    def test_a_driver_or_gpu_that_cannot_be_used_is_one_line(self):
        for env, saying in (({'FAKE_CUDA_VERSION': '11080'}, 'cuda:0 11.8 12.0'), ({'FAKE_CUDA_ANSWERS': 'cuInit=100'}, 'cuda:0 cuInit (100)'),
                            ({'FAKE_CUDA_ANSWERS': 'cuDevicePrimaryCtxRetain=2'}, 'cuda:0 H200 (2)'),
                            ({'FAKE_CUDA_ANSWERS': 'cuStreamCreate=999'}, 'cuda:0 H200 (999)')):
            self.fails(1, *self.run_words(), env=self.fake(**env), saying=saying)
        self.fails(1, *self.run_words('cuda:2'), env=self.fake(), saying='cuda:2 there are 2')

    def test_without_a_compiler_and_a_bundle_it_says_what_is_missing_and_auto_takes_the_cpu(self):
        bare = self.fake(TILEWRIGHT_NVRTC=str(self.folder / 'nowhere'))
        self.fails(1, *self.run_words(), env=bare, saying='cuda:0 no bundle sm_90a compiler nowhere')
        result = self.ok('run', self.tiny, '--tokens', '1,2,3', '-n', 3, '--device', 'auto', '--json', env=bare)
        self.assertEqual(result.json()['device'], 'cpu')
        self.assertIn('device cuda:0: no bundle has kernels for sm_90a', result.err.splitlines()[0])

    def test_a_bundle_of_another_architecture_is_named(self):
        listed = self.folder / 'list.txt'
        listed.write_text('rmsnorm.f32-f32-none-f32.tt.sm_80.0x0x0.w4.s0.k0.c0x0.scale.p2_0_0_0\n')
        bundle = self.folder / 'ampere.twb'
        self.ok('bundle', 'build', '--list', listed, '-o', bundle, env=self.fake())
        bare = self.fake(TILEWRIGHT_NVRTC=str(self.folder / 'nowhere'))
        self.fails(1, *self.run_words(), '--bundle', bundle, env=bare, saying='ampere.twb has kernels for sm_80 sm_90a')

    def test_a_kernel_that_cannot_be_prepared_is_replaced_and_named_once(self):
        usual = self.ok(*self.run_words(), env=self.sound()).out
        long = ['run', self.small, '--tokens', ','.join(map(str, range(1, 201))), '-n', 1, '--device', 'cuda:0']
        for words, answer, said in ((self.run_words(), 'cuFuncSetAttribute=1', 'is used instead'),
                                    (long, 'cuTensorMapEncodeTiled=1', 'another kernel is tried')):
            result = self.ok(*words, env=self.sound(FAKE_CUDA_ANSWERS=answer))
            told = [line for line in result.err.splitlines() if 'cannot be prepared' in line]
            self.assertEqual(len(told), 1, result.err)
            self.assertRegex(told[0], rf'warning: \w+: \S+ cannot be prepared \(.*{answer.split("=")[0]}: CUDA_ERROR.*{said}')
            if words is not long:
                self.assertEqual(result.out, usual)

    def test_where_no_kernel_is_left_one_line_says_why(self):
        replaced = failed = 0
        for after in range(14):
            result = self.run_cli(*self.run_words(), env=self.sound(FAKE_CUDA_ANSWERS=f'cuModuleLoadDataEx=200@{after}'))
            told = [line for line in result.err.splitlines() if '(200)' in line]
            if not told:
                break
            self.assertEqual(len(told), 1, result.err)
            self.assertIn('cannot be prepared (GPU 0 (NVIDIA H200): cuModuleLoadDataEx', told[0])
            if result.rc == 0:
                replaced += 1
                continue
            failed += 1
            self.assertEqual((result.rc, result.text), (1, ''))
            self.assertRegex(told[0], r'^tilewright: node .*: no kernel is left for \w+ .*others do not apply$')
        self.assertGreater(replaced, 0)
        self.assertGreater(failed, 0)

    def test_a_model_with_experts_is_run_or_refused_in_one_line(self):
        model = self.folder / 'experts.gguf'
        words = ['run', model, '--tokens', '1,2,3', '-n', 2, '--temp', 0, '--device', 'cuda:0']
        self.ok('synth', '--preset', 'tiny-test-mixtral', '--quant', 'q8_0', '-o', model)
        self.assertEqual(self.run_cli(*words, env=self.sound()).rc, 0)
        self.ok('synth', '--preset', 'tiny-test-mixtral', '--quant', 'mxfp4_moe', '-o', model)
        result = self.run_cli(*words, env=self.sound())
        self.assertEqual((result.rc, result.text), (1, ''))
        self.assertRegex(result.err.strip(), r'^tilewright: tensor blk\.0\.ffn_down_exps\.weight: there is no kernel for products with 5 '
                         r'experts of mxfp4 on cuda/.*; the CPU has one$')

    def test_a_gpu_that_no_kernel_fits_ends_with_one_line(self):
        result = self.run_cli(*self.run_words(), env=self.fake(FAKE_CUDA_CTAS='0'))
        self.assertEqual((result.rc, result.text), (1, ''))
        # What a fusion would have needed is told before, and on a busy machine how far compiling is.
        *before, last = result.err.strip().splitlines()
        self.assertRegex(last, r'^tilewright: node .*: no kernel is left for embedding .* of dynamic shared memory do not fit on a multiprocessor\)')
        self.assertTrue(all('warning: no kernel is left for' in line or ': compil' in line for line in before), result.err)

    def test_weights_that_do_not_fit_say_what_would(self):
        self.fails(1, *self.run_words(), env=self.fake(FAKE_CUDA_MIB='64'),
                   saying='weights need 114 MiB 64.0 MiB of 64.0 MiB are free 16 of 30 layers fit weights of 4.0 bits q3_k')

    def test_a_cache_that_cannot_grow_says_which_context_fits_and_that_one_does(self):
        # With some seeds the only token that is sampled from all logits is a special one, which has no text.
        words = ['run', self.small, '--tokens', '1,2,3', '-n', 1100, '--ignore-eos', '--seed', 1, '--device', 'cuda:0']
        env = self.sound(FAKE_CUDA_MIB='134')
        result = self.run_cli(*words, '--context', 2048, env=env)
        self.assertEqual(result.rc, 1, result.err)
        said = re.search(r'pages? of 256 positions for the KV cache needs? .* are free\); a context of (\d+) positions fits;', result.err)
        self.assertTrue(said, result.err)
        self.assertEqual(result.text.count('\n'), 1, 'the text so far, as a line')
        context = int(said[1])
        self.assertIn(context, range(256, 1024))
        fits = self.ok(*words, '--context', context, env=env)
        self.assertIn(f'the context of {context} positions is full', fits.err)

    def test_a_context_of_the_model_that_memory_does_not_hold_is_made_smaller_and_said(self):
        words = ['run', self.small, '--tokens', '1,2,3', '-n', 3000, '--ignore-eos', '--seed', 1, '--device', 'cuda:0']
        result = self.ok(*words, env=self.sound(FAKE_CUDA_MIB='256'))
        said = re.search(r"warning: .* no KV cache of the model's 8192 positions for 1 sequence: the context is (\d+) positions", result.err)
        self.assertTrue(said, result.err)
        self.assertIn(int(said[1]), range(256, 4096))
        self.assertEqual('stopped: the context of' in result.err, int(said[1]) < 3000, result.err)

    def test_memory_that_runs_out_anywhere_is_one_line_that_says_what_is_free(self):
        refused = 0
        for after in range(40):
            env = self.fake(FAKE_CUDA_ANSWERS=f'cuMemAlloc=2@{after}')
            result = self.run_cli(*self.run_words(), env=env)
            self.assertIn(result.rc, (0, 1), result.err)
            if 'CUDA_ERROR_OUT_OF_MEMORY' not in result.err:
                break
            if result.rc == 0:
                self.assertRegex(result.err, r'warning: the workspace of \S+ .* are free\); \S+ is used instead')
                continue
            refused += 1
            self.assertEqual(result.rc, 1, result.err)
            self.assertEqual(result.text, '', 'no text of a pass that failed')
            last = result.err.strip().splitlines()[-1]
            self.assertTrue(last.startswith('tilewright: '), last)
            self.assertIn(' are free', last)
        self.assertGreaterEqual(refused, 2, 'the weights, and what a pass needs')

    def test_doctor_shows_what_the_gpu_does_where_nvml_is_there(self):
        def findings(**extra):
            value = self.ok('doctor', '--device', 'cuda:0', '--json', env=self.fake(**extra)).json()
            return value, {finding['what']: finding for finding in value['findings']}

        value, found = findings(TILEWRIGHT_NVML=str(self.folder / 'none'))
        self.assertNotIn('gpu_state', value)
        self.assertNotIn('clocks', found)
        value, found = findings(TILEWRIGHT_NVML=FAKE_NVML, FAKE_NVML_LIMITS='0x44')
        self.assertEqual(value['gpu_state']['sm_mhz'], 1755)
        self.assertTrue(value['gpu_state']['slowed'])
        self.assertEqual(found['clocks']['value'], '1755 of 1980 MHz, memory 3201 MHz; limited by: power cap, heat (hardware)')
        self.assertEqual(found['clocks']['health'], 'note')
        self.assertEqual(found['power']['value'], '412 of 700 W, 46 degrees Celsius')
        self.assertTrue(found['others on this GPU']['value'].startswith('process 4242'))

    def test_tuning_without_a_sound_worker_is_refused_with_where_it_was_sought(self):
        words = ('tune', '--gemm', 'm=1,n=64,k=64', '--budget', '1s', '--device', 'cuda:0')
        alone = self.folder / 'alone' / 'bin'
        alone.mkdir(parents=True)
        command = shutil.copy2(TILEWRIGHT, alone / 'tilewright')
        done = subprocess.run([command, *words], env=self.fake(), capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 1, done.stderr)
        for word in ('tune on cuda:0 needs a worker process', f'no tilewright-worker beside {alone}', 'libexec/tilewright', 'TILEWRIGHT_WORKER'):
            self.assertIn(word, done.stderr.strip().splitlines()[-1])
        self.assertEqual(done.stderr.count(str(alone)), 1, 'each folder once')

        def worker(name, content):
            path = self.folder / name
            path.write_bytes(content)
            path.chmod(0o700)
            return path

        def words_of(*texts):
            return b''.join(struct.pack('<I', len(text)) + text for text in texts)

        hello = words_of(b'hello', b'999', b'tilewright 9.9 (f00d)')
        (self.folder / 'hello').write_bytes(b'TWWM' + struct.pack('<I', len(hello)) + hello)
        other = worker('other', f'#!/bin/sh\ncat {self.folder / "hello"}\nexec sleep 60\n'.encode())
        damaged = worker('damaged', pathlib.Path(TILEWRIGHT).read_bytes()[:5000])
        wordy = worker('wordy', b'#!/bin/sh\necho usage: something\n')
        for named, saying in ((self.folder / 'nowhere', 'nowhere not program'), (other, 'another build tilewright 9.9 (f00d) protocol 999 protocol'),
                              (damaged, 'damaged'), (wordy, 'wordy')):
            result = self.run_cli(*words, env=self.fake(TILEWRIGHT_WORKER=str(named)))
            self.assertEqual((result.rc, result.text), (1, ''))
            # Before it: that the fake driver's GPU is too fast to be measured.
            last = result.err.strip().splitlines()[-1]
            for word in f'tune on cuda:0 needs a worker process {named} {saying} TILEWRIGHT_WORKER'.split():
                self.assertIn(word, last)

    def test_a_gpu_that_is_lost_is_told_once_and_ends_the_run(self):
        for answer in ('cuStreamSynchronize=700@1', 'cuStreamSynchronize=700@3', 'cuLaunchKernelEx=719@5',
                       'cuMemcpyDtoHAsync=700'):
            result = self.run_cli(*self.run_words(), env=self.fake(FAKE_CUDA_ANSWERS=answer))
            self.assertEqual(result.rc, 1, f'{answer}: {result.err}')
            said = [line for line in result.err.splitlines() if 'is lost' in line]
            self.assertEqual(len(said), 1, f'{answer}: {result.err}')
            self.assertIn('GPU 0 (NVIDIA H200) is lost, nothing runs on it any more', said[0])
            self.assertIn(answer.split('=')[0], said[0])

    def test_an_h200_elsewhere_has_the_candidates_of_one_that_is_here(self):
        env = self.fake(TILEWRIGHT_CUBLASLT=FAKE_CUBLASLT)
        kinds = {'gemm': ['gemm', '--m', 64, '--n', 4096, '--k', 4096, '--type-a', 'bf16', '--type-b', 'bf16', '--type-c', 'bf16'],
                 'gemm of blocks': ['gemm', '--m', 1, '--n', 4096, '--k', 4096, '--type-a', 'bf16', '--type-b', 'q4_k', '--type-c', 'bf16']}
        kinds.update({op: [op, problem] for op, problem in PROBLEMS.items()})
        for kind, words in kinds.items():
            here = self.ok('explain', *words, '--device', 'cuda:0', '--json', env=env).json()
            there = self.ok('explain', *words, '--device-spec', H200, '--json', env=env).json()
            self.assertEqual(there['device'], here['device'])
            keys = ('kernel', 'spec', 'feasible', 'reason')
            self.assertEqual(*(sorted(str([c[k] for k in keys]) for c in found['candidates']) for found in (there, here)), kind)
            self.assertEqual(there['chosen'], here['chosen'])
            self.assertTrue(any(c['feasible'] for c in there['candidates']), kind)
        # What tune promises of lines without padding: 72, 72 and 80 bytes.
        lines = ['gemm', '--m', 4, '--n', 40, '--k', 36, '--type-a', 'bf16', '--type-b', 'bf16', '--type-c', 'bf16']
        for where in (['--device', 'cuda:0'], ['--device-spec', H200]):
            problem = self.ok('explain', *lines, *where, '--json', env=env).json()['problem']
            self.assertIn('align_a=3 align_b=3 align_c=4', problem)
        vendor = [c for c in self.ok('explain', *kinds['gemm'], '--device-spec', H200, '--json', env=self.fake()).json()['candidates']
                  if '.cublaslt.' in c['kernel']]
        self.assertTrue(vendor and vendor[0]['feasible'], 'assumed for a machine elsewhere')
        own = self.ok('explain', *kinds['gemm'], '--device-spec', H200, '--providers', 'own', '--json', env=env).json()['candidates']
        vendor = [c for c in own if '.cublaslt.' in c['kernel']]
        self.assertTrue(vendor[0]['reason'].startswith('provider'), vendor)


if __name__ == '__main__':
    if not nvrtc_is_here():
        print('NVRTC is not here: set TILEWRIGHT_NVRTC')
        raise SystemExit(77)
    unittest.main()
