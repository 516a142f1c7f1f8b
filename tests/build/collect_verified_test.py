#!/usr/bin/env python3
"""Tests of tools/docs/collect_verified.py: what tests found right, and what of it a record keeps."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / 'tools/docs/collect_verified.py'


def report(*tests):
    """A report of GoogleTest with tests of (facts, failed, result)."""
    entries = []
    for facts, failed, result in tests:
        entry = {'name': 'test', 'status': 'RUN', 'result': result}
        if facts:
            entry['verified'] = ';'.join(facts)
        if failed:
            entry['failures'] = [{'failure': 'wrong'}]
        entries.append(entry)
    return json.dumps({'failures': sum(failed for _, failed, _ in tests), 'testsuites': [{'testsuite': entries}]})


def right(*facts):
    return report((facts, False, 'COMPLETED'))


class CollectVerified(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name, 'results')
        self.folder.mkdir()
        self.record = pathlib.Path(self.temporary.name, 'verified.tsv')
        self.write('a', right('product|q4_0|avx2|int8', 'embedding|q4_0|avx2|f32'))
        self.write('b', right('product|q4_0|scalar|f32'))
        (self.folder / 'expected.txt').write_text('a\nb\n')

    def write(self, name, text):
        (self.folder / f'{name}.json').write_text(text)

    def run_script(self, *words):
        command = [sys.executable, '-B', SCRIPT, *words, self.record, self.folder]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def collect(self, *words):
        done = self.run_script('--machine', 'M', *words)
        self.assertEqual(done.returncode, 0, done.stderr)

    def facts(self):
        lines = [line.split('\t') for line in self.record.read_text().splitlines() if not line.startswith('#')]
        return {'|'.join(words) for words in lines if words[0] != 'ran'}

    def test_what_was_collected_passes_the_check(self):
        self.collect()
        self.assertEqual(self.facts(), {'product|q4_0|avx2|int8', 'embedding|q4_0|avx2|f32', 'product|q4_0|scalar|f32'})
        self.assertIn('ran\tavx2\tM\t', self.record.read_text())
        self.assertEqual(self.run_script('--check').returncode, 0)

    def test_what_no_test_shows_any_more_and_what_is_new_are_named(self):
        self.collect()
        self.write('a', right('product|q4_1|avx2|int8', 'embedding|q4_0|avx2|f32'))
        done = self.run_script('--check')
        self.assertEqual(done.returncode, 1)
        self.assertIn('no test shows any more: product, q4_0, avx2, int8', done.stderr)
        self.assertIn('the record lacks: product, q4_1, avx2, int8', done.stderr)
        self.collect()
        self.assertEqual(self.run_script('--check').returncode, 0)

    def test_tests_that_failed_or_were_skipped_do_not_count(self):
        self.write('b', report((['product|q4_0|scalar|f32'], True, 'COMPLETED')))
        done = self.run_script()
        self.assertEqual(done.returncode, 1)
        self.assertIn('failed: b', done.stderr)
        self.write('b', report((['product|q4_0|scalar|f32'], False, 'SKIPPED')))
        self.collect()
        self.assertNotIn('product|q4_0|scalar|f32', self.facts())

    def test_a_report_that_is_missing_is_no_answer(self):
        (self.folder / 'b.json').unlink()
        for words in ([], ['--check']):
            done = self.run_script(*words)
            self.assertEqual(done.returncode, 77)
            self.assertIn('not run yet: b', done.stderr)
        self.assertFalse(self.record.exists())

    def test_lines_of_a_device_that_is_not_here_stay_and_are_not_checked(self):
        self.collect()
        self.write('b', report())
        self.assertEqual(self.run_script('--check').returncode, 0)
        self.collect()
        self.assertIn('product|q4_0|scalar|f32', self.facts())

    def test_a_device_that_the_record_does_not_know_is_not_checked(self):
        self.collect()
        self.write('b', right('product|q4_0|scalar|f32', 'product|q4_0|amx|int8'))
        self.assertEqual(self.run_script('--check').returncode, 0)

    def test_reports_of_some_tests_replace_only_their_operations(self):
        self.collect()
        for report_of in self.folder.glob('*.json'):
            report_of.unlink()
        self.write('gpu', right('embedding|q4_1|avx2|f32'))
        self.collect('--partial')
        self.assertEqual(self.facts(), {'product|q4_0|avx2|int8', 'embedding|q4_1|avx2|f32', 'product|q4_0|scalar|f32'})


if __name__ == '__main__':
    unittest.main()
