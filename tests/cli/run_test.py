"""run, perplexity, synth and bench model on a tiny model with random weights."""

import json
import math
import random
import resource
import signal
import struct
import subprocess
import unittest

from harness import PATIENCE, TILEWRIGHT, CliTest, Gguf, await_handler, interrupt

GREEDY = ('--temp', 0, '--json')


class Run(CliTest):

    def test_json_has_the_promised_keys(self):
        value = self.ok('run', self.tiny, '-p', 'hello', '-n', 5, '--ignore-eos', *GREEDY).json()
        self.has_keys(value, 'prompt_tokens', 'generated_tokens', 'text', 'load_ms', 'first_token_ms', 'prompt_tok_s',
                      'decode_tok_s', 'device', 'threads')
        self.assertEqual(len(value['generated_tokens']), 5)
        self.assertGreater(value['first_token_ms'], 0)
        self.assertNotIn('logits', value)

    def test_tokens_are_taken_as_they_are(self):
        value = self.ok('run', self.tiny, '--tokens', '5, 6,7', '-n', 1, *GREEDY).json()
        self.assertEqual(value['prompt_tokens'], [5, 6, 7])
        self.fails(1, 'run', self.tiny, '--tokens', '5,123456789', '-n', 1, saying='123456789')

    def test_text_streamed_is_the_text_of_json(self):
        for seed in range(4):
            words = ('run', self.tiny, '-p', 'a', '-n', 60, '--temp', 3, '--top-k', 0, '--top-p', 1, '--min-p', 0, '--seed', seed)
            text = self.ok(*words, '--json').json()['text']
            plain = self.ok(*words).out
            self.assertEqual(plain.decode('utf-8'), text + '\n', f'seed {seed}')

    def test_a_seed_repeats_and_another_differs(self):
        def tokens(seed):
            return self.ok('run', self.tiny, '-p', 'a', '-n', 20, '--temp', 2, '--seed', seed, '--json').json()['generated_tokens']

        self.assertEqual(tokens(7), tokens(7))
        self.assertNotEqual(tokens(7), tokens(8))

    def test_the_prompt_comes_from_a_file_or_standard_input(self):
        (self.folder / 'prompt.txt').write_text('hello world')
        by_text = self.ok('run', self.tiny, '-p', 'hello world', '-n', 3, *GREEDY).json()
        by_file = self.ok('run', self.tiny, '-f', self.folder / 'prompt.txt', '-n', 3, *GREEDY).json()
        by_pipe = self.ok('run', self.tiny, '-f', '-', '-n', 3, *GREEDY, input=b'hello world').json()
        for key in ('prompt_tokens', 'generated_tokens'):
            self.assertEqual(by_text[key], by_file[key])
            self.assertEqual(by_text[key], by_pipe[key])
        self.fails(1, 'run', self.tiny, '-f', self.folder / 'absent.txt', saying='absent.txt')
        self.fails(1, 'run', self.tiny, '-f', self.folder, saying=str(self.folder))

    def test_logits_are_those_of_the_last_position(self):
        value = self.ok('run', self.tiny, '--tokens', '1,2,3', '--logits', '-n', 1, *GREEDY).json()
        logits = value['logits']
        self.assertEqual(logits.index(max(logits)), value['generated_tokens'][0])
        alone = self.ok('run', self.tiny, '--tokens', '1,2,3', '--logits', '--json').json()
        self.assertEqual(alone['generated_tokens'], [])
        self.assertEqual(alone['logits'], logits)
        lines = self.ok('run', self.tiny, '--tokens', '1,2,3', '--logits').text.splitlines()
        self.assertEqual(len(lines), len(logits))

    def test_a_prompt_longer_than_the_context_is_one_line_and_exit_1(self):
        self.fails(1, 'run', self.tiny, '--tokens', ','.join(['1'] * 40), '-c', 32, saying='40 32')
        self.fails(1, 'run', self.tiny, '--tokens', ','.join(['1'] * 40), '-c', 32, '--logits', saying='40 32')
        self.fails(1, 'run', self.tiny, '-f', '-', '-n', 1, input=b'', saying='empty')

    def test_a_full_context_stops_says_so_and_exits_0(self):
        result = self.ok('run', self.tiny, '--tokens', '1,2,3', '-c', 16, '-n', 100, '--ignore-eos', *GREEDY)
        self.assertIn('context of 16', result.err)
        self.assertEqual(len(result.err.splitlines()), 1)
        self.assertEqual(result.json()['stop'], 'context full')
        self.assertEqual(len(result.json()['generated_tokens']), 14)

    def test_sampling_options_out_of_range_are_refused(self):
        self.fails(1, 'run', self.tiny, '-p', 'a', '--top-p', 2, '-n', 1, saying='top_p')

    def test_types_and_guarantees(self):
        for words in (['--activations', 'f32', '--kv', 'f32'], ['--activations', 'bf16', '--kv', 'bf16'],
                      ['--activations', 'int8', '--kv', 'f16'], ['--guarantee', 'deterministic'],
                      ['--guarantee', 'batch-invariant'], ['--no-fuse'], ['--chains', 'off'], ['--threads', 1], ['--providers', 'own']):
            value = self.ok('run', self.tiny, '--tokens', '1,2,3', '-n', 2, *GREEDY, *words).json()
            self.assertEqual(len(value['generated_tokens']), 2, words)

    def test_chains_that_a_device_does_not_have_are_a_warning_once(self):
        result = self.ok('run', self.tiny, '--tokens', '1,2,3', '-n', 4, '--chains', 'on', *GREEDY)
        self.assertEqual(len([line for line in result.err.splitlines() if 'has no chains of products: ' in line]), 1)
        self.assertIn('no kernel for one', result.err)
        self.fails(2, 'run', self.tiny, '--tokens', '1', '-n', 1, '--chains', 'sometimes', saying='--chains')

    def test_chat_without_a_template_asks_for_a_name(self):
        self.fails(1, 'run', self.tiny, '--chat', '-p', 'hi', saying='--chat-template')
        plain = self.ok('run', self.tiny, '-p', 'hi', '-n', 1, *GREEDY).json()
        chat = self.ok('run', self.tiny, '--chat', '--chat-template', 'chatml', '-p', 'hi', '-n', 1, *GREEDY).json()
        self.assertGreater(len(chat['prompt_tokens']), len(plain['prompt_tokens']))
        self.fails(2, 'run', self.tiny, '-p', 'hi', '--system', 'be kind', saying='--chat')

    def test_a_conversation_evaluates_only_what_is_new(self):
        words = ('run', self.tiny, '-i', '--chat-template', 'chatml', '-n', 3, '--ignore-eos', '--temp', 0, '--json')
        answers = [json.loads(line) for line in self.ok(*words, input=b'hello\n\nand more\n/clear\nhello\n').text.splitlines()]
        self.assertEqual([answer['stop'] for answer in answers], ['length'] * 3)
        first, second, third = answers
        self.assertEqual(first['cached_tokens'], 0)
        # All of the first prompt is held, and of the answer what was fed and is spelled the same again.
        self.assertGreaterEqual(second['cached_tokens'], first['prompt_tokens'])
        self.assertGreater(second['prompt_tokens'], second['cached_tokens'])
        self.assertEqual(third['generated_tokens'], first['generated_tokens'])
        self.assertEqual(third['prompt_tokens'], first['prompt_tokens'])
        self.assertEqual(third['cached_tokens'], first['prompt_tokens'] - 1)
        kind = self.ok(*words, '--system', 'be kind', input=b'hello').json()
        self.assertGreater(kind['prompt_tokens'], first['prompt_tokens'])

    def test_a_message_beyond_the_context_is_refused_and_the_conversation_goes_on(self):
        words = ('run', self.tiny, '-i', '--chat-template', 'chatml', '-n', 1, '-c', 96, '--temp', 0, '--json', '--ignore-eos')
        result = self.ok(*words, input=b'x y z ' * 100 + b'\nhello\n')
        self.assertEqual(len(result.text.splitlines()), 1)
        self.assertEqual(len(result.err.splitlines()), 1)
        self.assertIn('context holds 96', result.err)
        self.fails(2, 'run', self.tiny, '-i', '-p', 'hi', saying='--interactive')

    def test_verbose_tells_kernels_and_speeds_on_standard_error(self):
        result = self.ok('run', self.tiny, '-p', 'a', '-n', 2, '--verbose')
        self.assertIn('gemm.', result.err)
        self.assertIn('tok/s', result.err)
        self.assertNotIn('gemm.', result.text)


class BadModels(CliTest):

    def write(self, data, name='bad.gguf'):
        path = self.folder / name
        path.write_bytes(bytes(data))
        return path

    def test_files_that_are_no_models(self):
        self.fails(1, 'run', self.folder / 'absent.gguf', '-p', 'a', saying='absent.gguf')
        self.fails(1, 'run', self.folder, '-p', 'a', saying=str(self.folder))
        self.fails(1, 'run', self.write(b''), '-p', 'a', saying='bad.gguf')
        self.fails(1, 'run', self.write(b'hello, this is text'), '-p', 'a', saying='GGUF')

    def test_truncated_anywhere(self):
        data = self.tiny.read_bytes()
        for size in (4, 23, 100, 1000, len(data) // 2, len(data) - 1):
            self.fails(1, 'run', self.write(data[:size]), '-p', 'a', saying='bad.gguf')

    def test_flipped_bits_never_crash(self):
        data = self.tiny.read_bytes()
        for seed in range(24):
            pick = random.Random(seed)
            damaged = bytearray(data)
            damaged[pick.randrange(min(len(data), 4000 if seed % 2 else len(data)))] ^= 1 << pick.randrange(8)
            result = self.run_cli('run', self.write(damaged), '--tokens', '1,2', '-n', 2, '--temp', 0)
            self.assertIn(result.rc, (0, 1), f'seed {seed}: {result.err}')

    def test_hostile_counts(self):
        for offset in (8, 16):
            data = bytearray(self.tiny.read_bytes())
            struct.pack_into('<Q', data, offset, 1 << 60)
            self.fails(1, 'run', self.write(data), '-p', 'a', saying='bad.gguf')

    def test_unknown_architecture_is_named(self):
        data = self.tiny.read_bytes()
        at = data.index(b'general.architecture') + len(b'general.architecture') + 4 + 8
        self.assertEqual(data[at:at + 5], b'llama')
        self.fails(1, 'run', self.write(data[:at] + b'mamba' + data[at + 5:]), '-p', 'a', saying='mamba')

    def test_a_missing_key_is_named(self):
        data = self.tiny.read_bytes().replace(b'llama.block_count', b'llama.block_cuont')
        self.fails(1, 'run', self.write(data), '-p', 'a', saying='llama.block_count')

    def test_an_unsupported_type_is_named(self):
        file = Gguf(self.tiny.read_bytes())
        type_at, _ = file.tensors['blk.0.ffn_down.weight']
        struct.pack_into('<I', file.data, type_at, 40)  # nvfp4: 36 bytes for 64, as q4_0
        self.fails(1, 'run', self.write(file.data), '-p', 'a', saying='blk.0.ffn_down.weight nvfp4')
        struct.pack_into('<I', file.data, type_at, 9999)
        self.fails(1, 'run', self.write(file.data), '-p', 'a', saying='blk.0.ffn_down.weight 9999 convert q4_k')

    def test_logits_that_are_not_numbers_are_exit_1(self):
        file = Gguf(self.tiny.read_bytes())
        _, at = file.tensors['output_norm.weight']
        struct.pack_into('<f', file.data, at, math.nan)
        path = self.write(file.data)
        self.fails(1, 'run', path, '-p', 'a', '-n', 2, '--temp', 0, '--json', saying='NaN')
        self.fails(1, 'run', path, '-p', 'a', '--logits', '--json', saying='NaN')

    def test_too_little_memory_is_one_line(self):
        outcomes = set()
        for mib in (24, 40, 64, 96, 160, 400, 2000):
            result = self.run_cli('run', self.tiny, '-p', 'a', '-n', 2, '--threads', 2,
                                  limits={resource.RLIMIT_AS: mib << 20})
            if result.rc not in (0, 1):  # the loader itself cannot map the program
                self.assertIn('shared', result.err, f'{mib} MiB: rc {result.rc}')
            outcomes.add(result.rc)
        self.assertIn(0, outcomes)
        # A context whose cache would take a terabyte is no reason to fail: memory follows the positions that are held.
        result = self.run_cli('run', self.tiny, '-p', 'a', '-n', 4, '-c', 16777216, '--kv', 'f32',
                                  limits={resource.RLIMIT_AS: 2 << 30})
        self.assertEqual(result.rc, 0, result.err)


class Pipes(CliTest):

    ENDLESS = ('-p', 'a', '-n', -1, '--ignore-eos', '-c', 400000)
    ALL_IT_SAYS = rb'\Atilewright: warning: --context 400000 [^\n]*\n\Z'

    def test_a_closed_pipe_ends_it_quietly(self):
        process = self.start('run', self.tiny, *self.ENDLESS)
        self.assertTrue(process.stdout.read(1))
        process.stdout.close()
        self.assertEqual(process.wait(timeout=PATIENCE), -signal.SIGPIPE)
        self.assertRegex(process.stderr.read(), self.ALL_IT_SAYS)

    def test_a_full_disk_behind_standard_output_is_an_error(self):
        for words in (['run', self.tiny, '-p', 'a', '-n', 4, '--cache-mode', 'readonly'], ['synth', '--preset', 'list'], ['--help']):
            with open(self.folder / 'out', 'wb') as full:
                self.fails(1, *words, stdout=full, limits={resource.RLIMIT_FSIZE: 0}, saying='standard output')

    def test_a_closed_standard_output_is_an_error(self):
        command = 'exec "$0" run "$1" -p a -n 4 --temp 0 >&-'
        done = subprocess.run(['sh', '-c', command, TILEWRIGHT, self.tiny], env=self.environment(), capture_output=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'standard output', done.stderr)

    def test_ctrl_c_prints_what_there_is_and_exits_130(self):
        process = self.start('run', self.tiny, *self.ENDLESS)
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130, err)
        self.assertTrue(out.endswith(b'\n'))
        out.decode('utf-8')
        self.assertRegex(err, self.ALL_IT_SAYS)

    def test_a_signal_ends_a_long_prompt_between_its_passes(self):
        text = self.folder / 'long.txt'
        text.write_text('it was a bright cold day ' * 50000)
        long = ('-c', 2000000, '--ubatch', 4)
        for words, which, rc in ((['run', self.tiny, '-f', text, '-n', 1], signal.SIGINT, 130),
                                 (['run', self.tiny, '-f', text, '--logits'], signal.SIGTERM, 143),
                                 (['bench', 'model', self.tiny, '-p', 1000000, '-n', 0], signal.SIGINT, 130),
                                 (['bench', 'model', self.tiny, '-p', 8, '-d', 1000000], signal.SIGTERM, 143),
                                 (['bench', 'serve', self.tiny, '--sequences', 1, '-p', 1000000, '-n', 1], signal.SIGINT, 130)):
            process = self.start(*words, *long)
            self.assertIn(b'--context', process.stderr.readline())  # the last that loading does
            self.assertEqual(interrupt(process, which), rc, words)

    def test_sigterm_exits_143(self):
        process = self.start('run', self.tiny, *self.ENDLESS, stdout=subprocess.DEVNULL)
        await_handler(process, signal.SIGTERM)
        self.assertEqual(interrupt(process, signal.SIGTERM), 143)


class Others(CliTest):

    def test_perplexity_of_random_weights_is_about_the_vocabulary(self):
        text = self.folder / 'text.txt'
        text.write_text('It was a bright cold day in April, and the clocks were striking thirteen. ' * 8)
        value = self.ok('perplexity', self.tiny, '-f', text, '--window', 64, '--json').json()
        self.has_keys(value, 'tokens', 'nll_mean', 'perplexity')
        self.assertAlmostEqual(math.exp(value['nll_mean']), value['perplexity'], delta=1e-6 * value['perplexity'])
        exact = self.ok('perplexity', self.tiny, '-f', text, '--window', 64, '--json', '--activations', 'f32', '--kv', 'f32').json()
        self.assertEqual(exact['tokens'], value['tokens'])
        self.assertLess(abs(exact['nll_mean'] - value['nll_mean']), 0.02)
        self.fails(1, 'perplexity', self.tiny, '-f', text, '--window', 1, saying='window')
        self.assertIn('perplexity', self.ok('perplexity', self.tiny, '-f', text, '--score', 'all').text)
        text.write_text('too short')
        self.fails(1, 'perplexity', self.tiny, '-f', text, saying='512 --score')

    def test_perplexity_against_another_model(self):
        text = self.folder / 'text.txt'
        text.write_text('It was a bright cold day in April, and the clocks were striking thirteen. ' * 8)
        other = self.folder / 'other.gguf'
        self.ok('synth', '--preset', 'tiny-test', '--quant', 'f32', '-o', other)
        words = ('perplexity', self.tiny, '-f', text, '--window', 64, '--against')
        value = self.ok(*words, other, '--json').json()['against']
        self.assertGreater(value['kl_mean'], 0)
        self.assertGreaterEqual(value['kl_max'], value['kl_p99'])
        self.assertLess(value['same_top'], 1.01)
        itself = self.ok(*words, self.tiny, '--json').json()
        self.assertEqual(itself['against']['perplexity'], itself['perplexity'])
        self.assertLess(itself['against']['kl_max'], 1e-9)
        self.assertIn('KL divergence', self.ok(*words, other).text)
        pieces = self.folder / 'pieces.gguf'
        self.ok('synth', '--preset', 'tiny-test-pieces', '-o', pieces)
        self.fails(1, *words, pieces, saying='differently')

    def test_bench_model_has_the_promised_rows(self):
        value = self.ok('bench', 'model', self.tiny, '-p', '8,16', '-n', 4, '--batch', '1,2', '--repeat', 2, '--json').json()
        rows = [(row['test'], row['batch']) for row in value['rows']]
        self.assertEqual(rows, [('pp8', 1), ('pp16', 1), ('tg4', 1), ('pp8', 2), ('pp16', 2), ('tg4', 2)])
        for row in value['rows']:
            self.assertLessEqual(row['tok_s_min'], row['tok_s_median'])
            self.assertLessEqual(row['tok_s_median'], row['tok_s_max'])
            self.assertGreater(row['tok_s_min'], 0)
            self.assertGreater(row['floor_tok_s'], 0)
            self.assertGreater(row['floor_read_gb_s'], 0)
        # Decoding reads the weights and, on average, two and a half positions of each sequence; a prompt the weights.
        weights, one, two = (next(row['floor_bytes'] for row in value['rows'] if (row['test'], row['batch']) == which)
                             for which in (('pp8', 1), ('tg4', 1), ('tg4', 2)))
        self.assertGreater(one, weights)
        self.assertAlmostEqual(two - weights, 2 * (one - weights), delta=2)
        self.assertEqual(list(value['peaks']), ['i8', 'bf16', 'f32'])
        for when in ('before', 'after'):
            self.assertGreaterEqual(value[f'hand_over_ns_{when}'], 0)
        for peak in value['peaks'].values():
            self.assertGreater(peak['gop_s'], 0)
            self.assertTrue(peak['instruction'])
        table = self.ok('bench', 'model', self.tiny, '-p', 8, '-n', 0, '--repeat', 1).text
        self.assertIn('pp8', table)
        self.assertNotIn('tg', table)
        self.assertIn('read again and again', table)
        self.assertIn('peaks: int8', table)

    def test_bench_model_measures_at_a_depth_and_by_step(self):
        words = ['bench', 'model', self.tiny, '-p', 8, '-n', 4, '-d', 16, '--batch', 2, '--repeat', 1, '--profile']
        value = self.ok(*words, '--json').json()
        self.assertEqual(value['depth'], 16)
        self.assertEqual([row['test'] for row in value['rows']], ['pp8 @ d16', 'tg4 @ d16'])
        for row in value['rows']:
            groups = row['steps']['groups']
            self.assertEqual({group['operation'] for group in groups} & {'attention', 'embedding', 'rms_norm'},
                             {'attention', 'embedding', 'rms_norm'})
            self.assertAlmostEqual(row['steps']['sum_us'], sum(group['count'] * group['us'] for group in groups), places=6)
        prompt, decode = value['rows']
        self.assertNotIn('chain', prompt)
        chain = decode['chain']
        of_layers = [group for group in decode['steps']['groups'] if 'mul_mat' in group['operation'] and group['first'].startswith('blk')]
        self.assertEqual(chain['products'], sum(group['count'] for group in of_layers))
        self.assertAlmostEqual(chain['bytes'], sum(group['count'] * group['bytes'] for group in of_layers))
        self.assertGreater(chain['us'], 0)
        shallow = self.ok('bench', 'model', self.tiny, '-p', 0, '-n', 4, '--repeat', 1, '--json').json()['rows'][0]
        self.assertNotIn('steps', shallow)
        self.assertRegex(self.ok(*words).text, r'(?s)tg4 @ d16, batch 2: a pass takes .* us.*mul_mat')
        self.fails(2, 'bench', 'model', self.tiny, '-d', '-1', saying='--depth')

    def test_a_profile_times_products_whose_activations_are_rounded_once_for_several(self):
        words = ['bench', 'model', '--synth', 'tiny-test', '--quant', 'q4_k_m', '-p', 8, '-n', 2, '--repeat', 1, '--profile', '--json']
        for more in ([], ['--fusions', 'none']):
            decode = self.ok(*words, *more).json()['rows'][1]
            of_layers = [group for group in decode['steps']['groups'] if 'mul_mat' in group['operation'] and group['first'].startswith('blk')]
            self.assertEqual(decode['chain']['products'], sum(group['count'] for group in of_layers), more)
            self.assertAlmostEqual(decode['chain']['bytes'], sum(group['count'] * group['bytes'] for group in of_layers))
            self.assertGreater(decode['chain']['us'], 0)

    def test_bench_model_takes_random_weights_instead_of_a_file(self):
        words = ['bench', 'model', '--synth', 'tiny-test', '--quant', 'q4_k_m', '-p', 8, '-n', 2, '--repeat', 1]
        value = self.ok(*words, '--json').json()
        self.assertEqual(value['model'], 'tiny-test q4_k_m')
        self.assertEqual([row['test'] for row in value['rows']], ['pp8', 'tg2'])
        self.fails(2, 'bench', 'model', '--synth', 'tiny-test', self.tiny, saying='--synth')
        self.fails(2, 'bench', 'model', self.tiny, '--quant', 'q4_0', saying='--synth')
        self.fails(2, 'bench', 'model', '--synth', 'llama-9', saying='llama-3.1-8b')
        self.fails(2, 'bench', 'model', '--synth', 'tiny-test', '--quant', 'q9', saying='q4_k_m')
        self.fails(2, 'bench', 'model', saying='--synth')

    def test_bench_serve_serves_every_request_both_ways(self):
        words = ('bench', 'serve', self.tiny, '--sequences', 3, '--requests', 7, '-p', 9, '-n', 4, '--ubatch', 4)
        value = self.ok(*words, '--repeat', 1, '--json').json()
        self.assertEqual((value['sequences'], value['requests'], value['max_rows']), (3, 7, 4))
        self.assertEqual([row['prompts'] for row in value['rows']], ['beside decodes', 'alone'])
        for row in value['rows']:
            self.has_keys(row, 'tok_s_median', 'tok_s_min', 'tok_s_max', 'all_tok_s_median', 'passes', 'rows_per_pass',
                          'first_ms_median', 'first_ms_p95', 'next_ms_median', 'next_ms_p95', 'next_ms_p99')
            self.assertLessEqual(row['rows_per_pass'], 4)
            self.assertGreater(row['all_tok_s_median'], row['tok_s_median'])
            self.assertGreater(row['floor_tok_s'], 0)
        # The same rows in fewer passes, since prompts fill what the tokens leave.
        together, apart = (row['passes'] for row in value['rows'])
        self.assertLess(together, apart)
        self.assertEqual(list(value['peaks']), ['i8', 'bf16', 'f32'])
        self.has_keys(value, 'read_gb_s', 'peak_gop_s', 'peak_instruction', 'hand_over_ns_before', 'hand_over_ns_after')
        # One sequence has a token in every pass, which reads the weights and what its cache holds.
        alone = self.ok('bench', 'serve', self.tiny, '--sequences', 1, '--requests', 2, '-p', 9, '-n', 4, '--repeat', 1, '--json').json()
        self.assertLessEqual(alone['floor_passes'], min(row['passes'] for row in alone['rows']))
        prompt = self.ok('bench', 'model', self.tiny, '-p', 8, '-n', 0, '--repeat', 1, '--json').json()['rows'][0]
        self.assertGreater(alone['floor_bytes'], prompt['floor_bytes'])
        table = self.ok(*words, '--repeat', 1).text
        for part in ('7 requests of about 9 + 4 tokens', 'of floor', 'floor: ', 'passes at least: ', 'read again and again', 'peaks: int8'):
            self.assertIn(part, table)

    def test_bench_tuner_judges_the_tuner_by_what_bench_record_measured(self):
        matrix = self.folder / 'cpu.matrix'
        problems = ['--gemm', 'm=1,n=64,k=64,type=q4_0', '--op', 'norm rows=8 cols=64']
        self.ok('bench', 'record', *problems, '--rounds', 5, '-o', matrix)
        words = ['bench', 'tuner', '--replay', matrix, '--replicates', 20]
        report = self.ok(*words, '--json').json()
        self.assertEqual([row['op'] for row in report['rows']], ['gemm', 'norm'])
        for row in report['rows']:
            self.assertGreater(row['candidates'], 1)
            self.assertGreaterEqual(row['mean_regret'], 0)
            self.assertLessEqual(row['mean_regret'], row['max_regret'] + 1e-9)
        summary = report['summary']
        self.assertEqual(set(summary), {'mean_regret', 'p95_regret', 'max_regret', 'device_seconds', 'problems'})
        self.assertEqual(summary['problems'], 2)
        self.assertEqual(self.ok(*words, '--json').json(), report)
        self.assertIn('regret over all', self.ok(*words).text)
        self.assertEqual(self.ok(*words, '--replay', matrix, '--json').json()['summary']['problems'], 4)

    def test_bench_record_measures_where_the_weights_of_the_model_are(self):
        matrix = self.folder / 'tiny.matrix'
        for more, policy in ([], 'warm'), (['--policy', 'cold'], 'cold'):
            self.ok('bench', 'record', self.tiny, '--ops', 'norm', '--m', 1, '--rounds', 3, '-o', matrix, *more)
            self.assertEqual(json.loads(matrix.read_text().splitlines()[0])['policy'], policy)

    def test_bench_tuner_refuses_what_is_no_matrix(self):
        wrong = self.folder / 'wrong.matrix'
        wrong.write_text('name,n,k\n')
        self.fails(1, 'bench', 'tuner', '--replay', wrong, saying='line 1')
        self.fails(1, 'bench', 'tuner', '--replay', self.folder / 'none', saying='none')
        self.fails(2, 'bench', 'tuner', saying='--replay')
        self.fails(2, 'bench', 'record', '--gemm', 'm=1,n=64,k=64', saying='--output')
        self.fails(2, 'bench', 'record', '-o', wrong, saying='nothing to measure')
        self.fails(1, 'bench', 'record', '--gemm', 'm=1,n=64,k=64', '-o', self.folder / 'no' / 'x', saying='no/x')

    def test_a_failure_prints_nothing_on_standard_output(self):
        refused = self.fails(1, 'run', self.tiny, '--tokens', '1,2,3', '-n', 2, '-c', 2, saying='3 tokens')
        self.assertEqual(refused.out, b'')
        refused = self.fails(1, 'run', self.tiny, '--tokens', '100000', '-n', 2, saying='token = 100000')
        self.assertEqual(refused.out, b'')

    def test_a_context_beyond_the_trained_one_is_a_warning(self):
        trained = self.ok('synth', '--preset', 'list', '--json').json()
        (context,) = [p['context'] for p in trained['presets'] if p['preset'] == 'tiny-test']
        wide = self.ok('run', self.tiny, '-p', 'a', '-n', 1, '-c', context + 1)
        self.assertEqual(wide.err.count(f'--context {context + 1} is more than the {context} positions'), 1)
        self.assertNotIn('warning', self.ok('run', self.tiny, '-p', 'a', '-n', 1, '-c', context).err)

    def test_perplexity_keeps_to_the_rows_of_a_pass(self):
        text = self.folder / 'narrow.txt'
        text.write_text('abc ' * 60)
        results = [self.ok('perplexity', self.tiny, '-f', text, '--window', 64, '--ubatch', rows, '--guarantee',
                           'batch-invariant', '--json').json()['nll_mean'] for rows in (5, 512)]
        self.assertEqual(results[0], results[1])

    def test_a_model_with_a_sentencepiece_vocabulary_runs(self):
        pieces = self.folder / 'pieces.gguf'
        self.ok('synth', '--preset', 'tiny-test-pieces', '-o', pieces)
        value = self.ok('run', pieces, '-p', 'the \u00e9', '-n', 4, '--temp', 0, '--json').json()
        bos, *ids = value['prompt_tokens']
        self.assertEqual(bos, 1)
        self.assertEqual(ids[-2:], [3 + 0xC3, 3 + 0xA9])  # no token holds it: its bytes
        self.assertEqual(len(value['generated_tokens']), 4)
        again = self.ok('run', pieces, '--tokens', ','.join(map(str, value['prompt_tokens'])), '-n', 4, '--temp', 0,
                        '--json').json()
        self.assertEqual(again['generated_tokens'], value['generated_tokens'])

    def test_synth_repeats_itself_and_cleans_up(self):
        self.assertIn('llama-3.1-8b', self.ok('synth', '--preset', 'list').text)
        again = self.folder / 'again.gguf'
        self.ok('synth', '--preset', 'tiny-test', '-o', again)
        self.assertEqual(again.read_bytes(), self.tiny.read_bytes())
        self.ok('synth', '--preset', 'tiny-test', '-o', again, '--seed', 2)
        self.assertNotEqual(again.read_bytes(), self.tiny.read_bytes())
        self.assertIn('q6_k', self.ok('synth', '--preset', 'llama-3.1-8b', '--quant', 'q5_k_m', '--dry-run').text)
        value = self.ok('synth', '--preset', 'llama-3.1-8b', '--dry-run', '--json').json()
        self.assertGreater(value['parameters'], 7e9)
        nowhere = self.folder / 'no' / 'such' / 'folder.gguf'
        self.fails(1, 'synth', '--preset', 'tiny-test', '-o', nowhere, saying=str(nowhere))

    def test_synth_on_a_full_disk_leaves_the_old_file(self):
        path = self.folder / 'full' / 'model.gguf'
        path.parent.mkdir()
        path.write_text('old')
        result = self.run_cli('synth', '--preset', 'tiny-test', '--quant', 'f32', '-o', path,
                              limits={resource.RLIMIT_FSIZE: 64 << 10})
        self.assertEqual(result.rc, 1)
        self.assertEqual([p.name for p in path.parent.iterdir()], ['model.gguf'])
        self.assertEqual(path.read_text(), 'old')


if __name__ == '__main__':
    unittest.main()
