"""Words: help, versions, and what happens to wrong ones."""

import json
import pathlib
import unittest

from harness import CliTest

VERBS = ['run', 'tune', 'perplexity', 'synth', 'bench', 'bench model', 'bench serve', 'bench gemm', 'bench op', 'bench op norm', 'explain', 'explain gemm', 'kernels',
         'cache', 'cache ls', 'cache show', 'cache stat', 'cache verify', 'cache explain', 'cache export', 'cache import',
         'cache merge', 'cache gc', 'bundle', 'bundle build', 'bundle show', 'bundle verify', 'doctor']


class Usage(CliTest):

    def test_every_verb_has_help_with_an_example(self):
        for verb in VERBS:
            help = self.ok(*verb.split(), '--help').text
            self.assertIn('Example', help, verb)
            self.assertIn(f'tilewright {verb.split()[0]}', help, verb)
        top = self.ok('--help').text
        for verb in VERBS:
            if ' ' not in verb:
                self.assertIn(f'  {verb} ', top)

    def test_fields_that_a_product_leaves_out_have_the_values_of_the_example(self):
        help = self.ok('bench', 'op', 'gemm', '--help').text
        example = help.split('tilewright bench op gemm "')[1].split('"')[0]
        rows = self.ok('bench', 'op', 'gemm', example, 'm=1 n=4096 k=4096', '--repeat', 1, '--json').json()['rows']
        for key in ('shape', 'bytes', 'kernel', 'spec'):
            self.assertEqual(rows[0][key], rows[1][key])
        self.assertIn('m, n and k must be given', help)
        for size in 'mnk':
            rest = ' '.join(f'{other}=64' for other in 'mnk' if other != size)
            self.fails(2, 'bench', 'op', 'gemm', rest, saying=size)

    def test_version_is_one_line(self):
        self.assertRegex(self.ok('--version').text, r'^tilewright \d+\.\d+\.\d+\n$')

    def test_wrong_words_exit_2_with_one_line(self):
        self.fails(2, 'rnu', saying="'rnu' 'run'")
        self.fails(2, 'bench', 'modle', saying="'modle' 'model'")
        self.fails(2, 'bench')
        self.fails(2, 'run', saying='MODEL')
        self.fails(2, 'run', self.tiny, '--no-such-option', saying="'--no-such-option'")
        self.fails(2, 'run', self.tiny, '-p', 'x', '--tmep', '1', saying="'--tmep'; '--temp'?")
        self.fails(2, 'run', self.tiny, '-p', 'x', '--temperature=1', saying="'--temperature'; '--temp'?")
        self.fails(2, 'run', self.tiny, '-p', 'x', '--temp', 'warm', saying='--temp')
        self.fails(2, 'run', self.tiny, '-p', 'x', '--kv', 'q3', saying='--kv')
        self.fails(2, 'run', self.tiny, saying='-p --tokens')
        self.fails(2, 'run', self.tiny, '-p', 'x', '--tokens', '1', saying='one of')
        self.fails(2, 'run', self.tiny, '--tokens', '1,x', saying="'x'")
        self.fails(2, 'tune', saying='--gemm')
        self.fails(2, 'tune', '--gemm', 'm=1,n=2', saying='k')
        self.fails(2, 'tune', '--gemm', 'm=1,n=2,k=3,colour=red', saying='colour')
        self.fails(2, 'tune', '--op', 'convolution rows=8', saying='convolution gemm, norm')
        self.fails(2, 'tune', '--op', 'norm rows=8 colz=5', saying="--op 'colz'")
        self.fails(1, 'tune', '--gemm', 'm=-1,n=64,k=64', saying='m = -1:')
        self.fails(1, 'explain', 'gemm', '--m', 1, '--n', 64, '--k', '-5', saying='k = -5:')
        self.fails(1, 'tune', '--op', 'norm rows=2000000000 cols=2000000000', saying='no memory for in: 2000000000')
        self.fails(2, 'explain', 'norm', 'rows=8\ncols=2', saying='rows')
        self.fails(2, 'tune', self.tiny, '--ops', 'norm,convolution', saying="--ops 'convolution'")
        self.fails(2, 'tune', self.tiny, '--budget', 'soon', saying='soon')
        for budget in ('-5s', 'inf', 'nan', '1e308h'):
            self.fails(2, 'tune', self.tiny, f'--budget={budget}', saying=f"'{budget}'")
        self.fails(2, 'explain', 'gemm', '--m', '1', '--n', 'wide', '--k', '32', saying='wide')
        self.fails(2, 'synth', '--preset', 'no-such', '-o', 'x.gguf', saying='tiny-test')
        self.fails(2, 'synth', '--preset', 'tiny-test', '--quant', 'q9', '-o', 'x.gguf', saying='q9')
        self.fails(2, 'bench', 'model', self.tiny, '-p', 'many', saying='many')
        self.fails(2, 'tune', self.tiny, '--m', '0', saying="--m: '0' 1 or more")
        self.fails(2, 'tune', self.tiny, '--m', '1,-2', saying="--m: '-2'")
        self.fails(2, 'bench', 'model', self.tiny, '--batch', '0', saying="--batch: '0'")
        self.fails(2, 'bench', 'serve', saying='--synth')
        self.fails(2, 'bench', 'serve', self.tiny, '--sequences', '0', saying='--sequences')
        self.fails(2, 'bench', 'serve', '--synth', 'no-such', saying='tiny-test')
        self.assertEqual(self.run_cli().rc, 2)

    def test_a_device_file_with_impossible_numbers_names_the_key(self):
        path = self.folder / 'device.json'
        for key, value in (('cores', 0), ('cores', 65536), ('read_gb_s', 0), ('i8_gop_s', -1), ('llc_bytes', -1),
                           ('amx_i8_gop_s', -1), ('bf16_gflop_s', 'fast')):
            path.write_text(json.dumps({key: value}))
            self.fails(1, 'explain', 'gemm', '--m', 1, '--n', 32, '--k', 32, '--device-spec', path, saying=key)

    def test_a_standard_error_that_takes_nothing_changes_no_exit_code(self):
        with open('/dev/full', 'w') as full:
            self.assertEqual(self.run_cli('rnu', stderr=full).rc, 2)
            self.assertEqual(self.run_cli(stderr=full).rc, 2)
            self.assertEqual(self.run_cli('bundle', 'show', self.tiny, stderr=full).rc, 1)
            self.assertEqual(self.run_cli('run', self.tiny, '--tokens', '1', '-n', 1, '--verbose', stderr=full).rc, 0)

    def test_an_empty_name_is_not_taken_for_none(self):
        build = ['bundle', 'build', '--arch', 'sm_80', '--all', '-o', 'x.twb']
        for option in ('--sign', '--model', '--list', '--bundle', '--site', '--shared', '--nvrtc'):
            self.fails(2, *build, option, '', saying=f'{option}: empty')
        self.fails(2, *build[:-1], '', saying='--output: empty')
        for words in (['bundle', 'show'], ['bundle', 'verify'], ['cache', 'import'], ['cache', 'export']):
            self.fails(2, *words, '', saying='FILE: empty')
        self.fails(2, 'bundle', 'verify', 'x.twb', '--key', '', saying='--key: empty')

    def test_a_device_that_is_not_here_is_one_line(self):
        for device in ('tpu', 'cuda', 'cuda:', 'cuda:-1', 'cuda:1x', 'cuda:1000'):
            self.fails(2, 'run', self.tiny, '-p', 'x', '--device', device, saying=device)
        for words in (['run', self.tiny, '-p', 'x'], ['bench', 'model', self.tiny], ['kernels'], ['doctor'],
                      ['explain', 'norm', 'rows=1 cols=64'], ['tune', self.tiny]):
            self.fails(1, *words, '--device', 'cuda:999', saying='cuda:999')

    def test_a_type_of_activations_that_only_a_gpu_has_exits_2_on_the_cpu(self):
        for words in (['run', self.tiny, '-p', 'x'], ['bench', 'model', self.tiny], ['bench', 'serve', self.tiny], ['tune', self.tiny],
                      ['tune', '--gemm', 'm=1,n=64,k=64'], ['bench', 'record', '--gemm', 'm=1,n=64,k=64', '-o', self.folder / 'x']):
            self.fails(2, *words, '--activations', 'f16', saying='--activations f16 GPU bf16, int8')

    def test_auto_takes_a_device_that_works_and_names_it(self):
        model = self.tiny
        if pathlib.Path('/dev/nvidiactl').exists():  # a GPU's kernels take heads of 64 and 128 only
            model = self.folder / 'heads_of_64.gguf'
            self.ok('synth', '--preset', 'smollm2-135m', '-o', model)
        result = self.run_cli('run', model, '--tokens', '1,2,3', '-n', 2, '--device', 'auto', '--json')
        self.assertEqual(result.rc, 0, result.err)
        self.assertIn(result.json()['device'], result.err.splitlines()[0])

    def test_an_isa_that_is_not_here_exits_2(self):
        self.fails(2, 'kernels', env=self.environment(TILEWRIGHT_ISA='mmx'), saying='mmx avx2')
        if 'amx_tile' not in pathlib.Path('/proc/cpuinfo').read_text():
            self.fails(2, 'run', self.tiny, '-p', 'x', env=self.environment(TILEWRIGHT_ISA='amx'), saying='amx')

    def test_every_isa_level_here_gives_the_same_greedy_tokens_for_f32(self):
        tokens = {}
        for isa in ('scalar', 'avx2', 'avx512'):
            result = self.run_cli('run', self.tiny, '--tokens', '1,2,3', '-n', 4, '--temp', 0, '--json', '--activations', 'f32',
                                  env=self.environment(TILEWRIGHT_ISA=isa))
            if result.rc == 0:
                tokens[isa] = tuple(result.json()['generated_tokens'])
            else:
                self.assertEqual(result.rc, 2)
        self.assertIn('scalar', tokens)
        self.assertEqual(len(set(tokens.values())), 1, tokens)

    def test_an_unknown_log_level_in_the_environment_is_a_warning(self):
        result = self.ok('kernels', env=self.environment(TILEWRIGHT_LOG='loud'))
        self.assertIn("'loud'", result.err)


if __name__ == '__main__':
    unittest.main()
