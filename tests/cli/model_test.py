"""The command on a real model: what it says, how soon, and in how much memory. Exits 77 where the model is missing."""

import json
import os
import pathlib
import re
import signal
import sys
import time
import unittest

from harness import MODEL, PATIENCE, CliTest

MIB = 1 << 20


class RealModel(CliTest):

    def test_it_knows_the_capital_of_france(self):
        value = self.ok('run', MODEL, '-p', 'The capital of France is', '-n', 8, '--temp', 0, '--json').json()
        self.assertIn('Paris', value['text'])
        plain = self.ok('run', MODEL, '-p', 'The capital of France is', '-n', 8, '--temp', 0).text
        self.assertEqual(plain, value['text'] + '\n')

    def test_chat_ends_by_itself_and_hears_the_system_message(self):
        words = ('run', MODEL, '--chat', '-p', 'What is the capital of France? Answer in one word.', '--temp', 0, '-n', 100, '--json')
        value = self.ok(*words).json()
        self.assertEqual(value['stop'], 'end of text')
        self.assertIn('Paris', value['text'])
        other = self.ok(*words, '--system', 'You speak like a pirate.').json()
        self.assertNotEqual(other['prompt_tokens'], value['prompt_tokens'])

    def test_a_conversation_remembers_what_was_said(self):
        again = b'Repeat it once more.\n'
        said = b'The capital of France is Paris. Repeat: Paris.\n' + again + b'/clear\n' + again
        lines = self.ok('run', MODEL, '-i', '--temp', 0, '-n', 20, '--json', input=said).text.splitlines()
        first, second, alone = map(json.loads, lines)
        self.assertEqual(second['text'], first['text'])
        self.assertNotEqual(alone['text'], second['text'])
        # What was said and answered is held; the end of the answer's turn and the next message are new.
        self.assertGreaterEqual(second['cached_tokens'], first['prompt_tokens'] + len(first['generated_tokens']) - 1)
        self.assertLess(second['cached_tokens'], second['prompt_tokens'])

    def test_tokens_equal_the_text_they_came_from(self):
        by_text = self.ok('run', MODEL, '-p', 'Once upon a time', '-n', 6, '--temp', 0, '--json').json()
        ids = ','.join(map(str, by_text['prompt_tokens']))
        by_ids = self.ok('run', MODEL, '--tokens', ids, '-n', 6, '--temp', 0, '--json').json()
        self.assertEqual(by_text['generated_tokens'], by_ids['generated_tokens'])

    def test_the_first_byte_comes_long_before_the_last(self):
        """Loading and the prompt take less than 200 tokens do, and text is written as it is made. How many milliseconds
        that is stands in bench/results (bench/record/record_startup.py)."""
        words = ('run', MODEL, '--tokens', '504,3575,282,4649,314,260,2240,282', '-n', 200, '--temp', 0, '--ignore-eos')
        self.ok(*words)  # page cache and records are warm from here on
        shares = []
        # Three, and more where a neighbour on the machine was in the way: it is the least that counts.
        while len(shares) < 3 or (min(shares) >= 0.5 and len(shares) < 15):
            start = time.monotonic()
            process = self.start(*words)
            self.assertTrue(process.stdout.read(1))
            first = time.monotonic() - start
            process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0)
            shares.append(first / (time.monotonic() - start))
        self.assertLess(min(shares), 0.5)

    def test_memory_stays_near_the_size_of_the_file(self):
        process = self.start('run', MODEL, '-p', 'Once upon a time', '-n', -1, '--ignore-eos', '-c', 2048)
        self.assertTrue(process.stdout.read(1))
        status = pathlib.Path(f'/proc/{process.pid}/status').read_text()
        process.kill()
        now, peak = (int(re.search(rf'{key}:\s+(\d+) kB', status)[1]) * 1024 for key in ('VmRSS', 'VmHWM'))
        file = os.path.getsize(MODEL)
        kv = 2048 * 30 * 2 * 192 * 2  # of the whole cache, of which little is touched yet
        print(f'resident {now / MIB:.0f} MiB, peak {peak / MIB:.0f} MiB, file {file / MIB:.0f} MiB', file=sys.stderr)
        self.assertLess(now, 1.3 * file + kv + 80 * MIB)
        self.assertLess(peak, 2.2 * file + kv + 80 * MIB)

    def test_ctrl_c_stops_a_long_generation(self):
        process = self.start('run', MODEL, '-p', 'Once upon a time', '-n', -1, '--ignore-eos')
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130, err)
        self.assertTrue(out.endswith(b'\n'))

    def test_bench_reports_speed_beside_the_floor(self):
        rows = self.ok('bench', 'model', MODEL, '-p', 64, '-n', 8, '--repeat', 1, '--json').json()['rows']
        self.assertEqual([row['test'] for row in rows], ['pp64', 'tg8'])
        for row in rows:
            self.assertGreater(row['tok_s_median'], 0)
            self.assertGreater(row['floor_tok_s'], 0)


if __name__ == '__main__':
    if not os.path.isfile(MODEL):
        print(f'skipped: no model at {MODEL!r} (TILEWRIGHT_MODEL; tools/get_model.sh fetches it)', file=sys.stderr)
        sys.exit(77)
    unittest.main()
