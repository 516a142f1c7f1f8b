"""tune, cache, explain, kernels, bench gemm and doctor: the records on disk, and all that can happen to them."""

import hashlib
import json
import math
import os
import pathlib
import re
import resource
import signal
import sqlite3
import time
import unittest

from harness import PATIENCE, CliTest, await_handler, interrupt

SMALL = 'm=1,n=64,k=64,type=q4_0'
OTHER = 'm=4,n=96,k=64,type=q8_0'
#: Keeps a tuner busy for many seconds.
LONG = [word for m in (64, 96, 128, 160, 192, 256) for word in ('--gemm', f'm={m},n=2048,k=2048,type=q4_0')]


class WithCache(CliTest):

    def setUp(self):
        self.cache = self.folder / self.id().split('.')[-1]
        self.env = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache))

    def tune(self, *gemms, **options):
        words = [word for gemm in gemms for word in ('--gemm', gemm)]
        return self.ok('tune', *words, '--budget', 0, '--json', env=options.pop('env', self.env), **options)

    def stat(self):
        return self.ok('cache', 'stat', '--json', env=self.env).json()

    def problems(self):
        return {row['problem'] for row in self.ok('cache', 'ls', '--json', env=self.env).json()['problems']}

    def verify(self):
        return self.ok('cache', 'verify', '--json', env=self.env).json()


class Tuning(WithCache):

    def test_what_is_tuned_is_kept_and_used(self):
        report = self.tune(SMALL).json()
        self.assertEqual(len(report['rows']), 1)
        row = report['rows'][0]
        self.has_keys(row, 'problem', 'kernel', 'spec', 'us', 'before', 'before_us')
        self.assertEqual(report['tuned'], 1)
        self.assertGreater(row['us'], 0)
        stat = self.stat()
        self.has_keys(stat['artifacts'], 'entries', 'bytes', 'compiles', 'hits', 'misses')
        self.has_keys(stat['records'], 'problems', 'measurements', 'quarantined')
        self.assertGreater(stat['records']['problems'], 0)
        self.assertTrue(stat['records']['persistent'])

        words = ('explain', 'gemm', '--m', 1, '--n', 64, '--k', 64, '--type-b', 'q4_0', '--json')
        value = self.ok(*words, env=self.env).json()
        self.has_keys(value, 'problem', 'chosen', 'candidates')
        self.assertEqual(value['provenance'], 'measured')
        # One winner a layout of the weights is kept. Among layouts the least median counts here, while the report keeps what was
        # there before where the difference is noise: each names one of the winners.
        records = self.ok('cache', 'show', '--json', env=self.env).json()['records']
        winners = {record['kernel'] for record in records if record['chosen']}
        self.assertIn(row['kernel'], winners)
        self.assertIn(value['chosen'], winners)
        chosen = [c for c in value['candidates'] if c['chosen']]
        self.assertEqual(len(chosen), 1)
        self.assertEqual(chosen[0]['rank'], 1)
        self.assertGreater(chosen[0]['measured_us'], 0)
        self.assertLessEqual(chosen[0]['interval_us'][0], chosen[0]['interval_us'][1])
        refreshed = self.ok(*words, '--cache-mode', 'refresh', env=self.env).json()
        self.assertNotEqual(refreshed['provenance'], 'measured')
        again = self.tune(SMALL).json()
        self.assertEqual(again['tuned'] + again['skipped'], 1)

    def test_what_a_problem_leaves_open_is_as_the_options_say(self):
        options = ('--activations', 'w8a8', '--guarantee', 'deterministic')
        self.ok('tune', '--gemm', SMALL, '--gemm', OTHER + ',precision=f32', *options, '--budget', 0, env=self.env)
        found = {tuple(dict(word.split('=') for word in problem.split() if '=' in word)[key]
                       for key in ('type_b', 'precision', 'guarantee')) for problem in self.problems()}
        self.assertEqual(found, {('q4_0', 'w8a8', 'deterministic'), ('q8_0', 'f32', 'deterministic')})

    def test_a_kernel_that_failed_here_is_out_in_every_mode(self):
        words = ('explain', 'gemm', '--m', 1, '--n', 64, '--k', 64, '--type-b', 'q4_0', '--json')
        before = self.ok(*words, env=self.env).json()
        self.tune(SMALL)
        scope = self.ok('cache', 'explain', '--json', env=self.env).json()
        kernels = self.ok('kernels', '--json', env=self.env).json()['kernels']
        kernel = next(k for k in kernels if k['op'] == 'gemm' and k['kernel'] == before['chosen'])
        # Another batch size: the quarantine covers every batch, whatever the cache policy was.
        problem = before['problem'].replace('m=1 ', 'm=7 ', 1).replace('pack_b=any', 'pack_b=' + kernel['pack_b'])
        texts = ['gemm', problem, scope['device'], scope['libraries'], 'warm', kernel['kernel'], kernel['fingerprint'],
                 'swizzle=0 splits=1', 'crash', 'signal 11']
        fields = [*texts, *'000000', 1000, '']  # samples, four times, chosen, unix_ms, extra
        content = ''.join(f'{len(str(field).encode())}:{field}' for field in fields)
        row = [hashlib.sha256(content.encode()).hexdigest()[:32], *texts, 0, 0.0, 0.0, 0.0, 0.0, 0, 1000, '']
        with sqlite3.connect(self.cache / 'records.sqlite') as db:
            db.execute(f'INSERT INTO measurement VALUES({",".join("?" * len(row))})', row)
        db.close()
        for mode in ('normal', 'refresh', 'readonly'):
            value = self.ok(*words, '--cache-mode', mode, env=self.env).json()
            out = next(c for c in value['candidates'] if c['kernel'] == before['chosen'])
            self.assertFalse(out['feasible'], mode)
            self.assertIn('signal 11', out['reason'], mode)
            self.assertNotEqual(value['chosen'], before['chosen'], mode)

    def test_what_tuning_gained_is_summed_up(self):
        report = self.ok('tune', self.tiny, '--budget', 0, '--m', '1,4', '--json', env=self.env).json()
        decided = [row for row in report['rows'] if row['conclusive'] and not row['only'] and not row['skipped']]
        gains = [row['gain'] for row in decided if row['gain'] is not None and row['gain'] > 1]
        self.assertEqual(report['decided'], len(decided))
        self.assertEqual(report['faster'], len(gains))
        self.assertAlmostEqual(report['gain_most'], max(gains, default=1))
        self.assertAlmostEqual(report['gain_mean'], math.prod(gains) ** (1 / max(len(gains), 1)), places=6)
        text = self.ok('tune', self.tiny, '--budget', 0, '--m', '1,4', '--remeasure', env=self.env).text
        counts = re.search(r'^(\d+) problems? decided, (?:none|(\d+)) faster by another launch than before', text, re.MULTILINE)
        if counts is None:
            self.assertEqual(text.count('(95 %)'), 1)  # a table, of which nothing was decided
            self.assertIn('inconclusive', text)
        else:
            self.assertEqual(len(re.findall(r'\d\.\d\dx \(', text)), int(counts[2] or 0))

    def test_a_model_is_tuned_and_runs_with_the_records(self):
        result = self.ok('tune', self.tiny, '--budget', 0, '--m', '1', '--json', env=self.env)
        self.assertGreater(result.json()['tuned'], 0)
        before = self.ok('run', self.tiny, '--tokens', '1,2,3', '-n', 4, '--temp', 0, '--json', '--activations', 'f32').json()
        tuned = self.ok('run', self.tiny, '--tokens', '1,2,3', '-n', 4, '--temp', 0, '--verbose', env=self.env)
        self.assertIn('measured', tuned.err)
        self.assertEqual(len(before['generated_tokens']), 4)

    def test_every_operation_of_a_model_is_tuned_and_explained_from_the_records(self):
        report = self.ok('tune', self.tiny, '--budget', 0, '--m', '1,4', '--json', env=self.env).json()
        rows = [row for row in report['rows'] if row['timed']]
        self.assertEqual(report['failed'], 0)
        self.assertEqual(report['tuned'], len(rows))
        # Where one kernel is all there is (TILEWRIGHT_ISA=scalar), only products are timed.
        found = {row['op'] for row in report['rows']}
        self.assertLessEqual({'gemm', 'norm', 'rope', 'attention', 'embedding'}, found)
        for row in rows:
            self.has_keys(row, 'op', 'problem', 'kernel', 'spec', 'us', 'before', 'gain', 'conclusive')
            self.assertEqual(row['quarantined'], 0, row)
            self.assertGreater(row['us'], 0, row)
        for row in rows:
            if row['op'] == 'gemm':
                continue
            said = self.ok('explain', row['op'], row['problem'], '--policy', 'warm', '--json', env=self.env).json()
            self.assertEqual(said['provenance'], 'measured', row)
            self.assertEqual((said['chosen'], said['chosen_spec']), (row['kernel'], row['spec']))
            self.assertGreater(max(c['measured_us'] or 0 for c in said['candidates']), 0)
        shown = self.ok('cache', 'show', '--policy', 'warm', '--json', env=self.env).json()['records']
        self.assertEqual({record['op'] for record in shown}, {row['op'] for row in rows})
        self.assertEqual({record['state'] for record in shown}, {'used'})
        again = self.ok('tune', self.tiny, '--budget', 0, '--m', '1,4', '--json', env=self.env).json()
        # Known already, or gone on with where the machine was too busy to tell.
        self.assertLessEqual(sum(row['conclusive'] for row in rows), again['skipped'])

    def test_the_policy_follows_the_size_of_the_model(self):
        words = ['tune', self.tiny, '--budget', 0, '--m', '1', '--ops', 'gemm', '--json']
        tuned = [self.ok(*words, *more, env=self.env).json()['tuned'] for more in ([], ['--policy', 'cold'])]
        self.assertGreater(min(tuned), 0)  # what was measured warm does not answer for cold
        policies = {record['policy'] for record in self.ok('cache', 'show', '--json', env=self.env).json()['records']}
        self.assertEqual(policies, {'warm', 'cold'})
        run = ['bench', 'model', self.tiny, '-p', 0, '-n', 1, '--repeat', 1, '--json']
        self.assertEqual(self.ok(*run, env=self.env).json()['policy'], 'warm')
        self.assertEqual(self.ok(*run, '--policy', 'cold', env=self.env).json()['policy'], 'cold')
        self.fails(2, *run, '--policy', 'hot', saying='--policy')

    def test_explain_names_the_policy_under_which_it_was_measured(self):
        self.ok('tune', '--op', 'norm rows=8 cols=96', '--policy', 'warm', '--budget', 0, env=self.env)
        words = ['explain', 'norm', 'rows=8 cols=96', '--json']
        cold, warm = (self.ok(*words, *more, env=self.env).json() for more in ([], ['--policy', 'warm']))
        if warm['provenance'] == 'measured':  # not where one kernel is all there is, or the machine was too busy
            self.assertEqual(cold['would_change'][0], '--policy warm, under which it was measured')
        self.assertNotIn('--policy cold', ' '.join(warm['would_change']))

    def test_operations_and_problems_are_named(self):
        report = self.ok('tune', self.tiny, '--budget', 0, '--m', '4', '--ops', 'norm,rope', '--json', env=self.env).json()
        self.assertEqual({row['op'] for row in report['rows']}, {'norm', 'rope'})
        said = self.ok('explain', 'norm', 'rows=7 cols=96', env=self.env).text
        problem = said.split('tilewright tune --op "')[1].split('"')[0]
        self.assertEqual(problem, 'norm rows=7 cols=96')
        rows = self.ok('tune', '--op', problem, '--op', 'copy rows=9 cols=100', '--budget', 0, '--json', env=self.env).json()['rows']
        self.assertCountEqual([row['op'] for row in rows], ['norm', 'copy'])
        self.assertTrue(all(row['only'] or row['us'] > 0 for row in rows))
        table = self.ok('tune', '--op', problem, env=self.env).text
        only = next(row['only'] for row in rows if row['op'] == 'norm')
        self.assertIn('one candidate' if only else 'norm rows=7 cols=96', table)

    def test_shapes_come_from_a_file(self):
        path = self.folder / 'shapes.csv'
        path.write_text('# comment\nname,n,k\na,64,64\n\nb,96,64\n')
        report = self.ok('tune', '--shapes', path, '--m', '1', '--type', 'q8_0', '--budget', 0, '--json', env=self.env).json()
        self.assertEqual(len(report['rows']), 2)
        rows = self.ok('bench', 'gemm', '--shapes', path, '--m', '1,4', '--type', 'q8_0', '--repeat', 2, '--json',
                       env=self.env).json()['rows']
        self.assertEqual([(row['name'], row['m']) for row in rows], [('a', 1), ('a', 4), ('b', 1), ('b', 4)])
        for row in rows:
            self.has_keys(row, 'name', 'm', 'n', 'k', 'type', 'weight_bytes', 'us_median', 'baseline_us_median', 'floor_us', 'kernel', 'provenance')
            self.assertGreater(row['us_median'], 0)
        self.fails(2, 'bench', 'gemm', '--shapes', path, '--baseline', 'cublaslt', saying='no kernels of it')
        path.write_text('name,n\na,64\n')
        self.fails(1, 'tune', '--shapes', path, saying="shapes.csv:1 'k'")
        path.write_text('n,k\n64,wide\n')
        self.fails(1, 'tune', '--shapes', path, saying='shapes.csv:2 wide')
        self.fails(1, 'bench', 'gemm', '--shapes', path, saying='shapes.csv:2 wide')
        path.write_text('n,k,type\n64,64,q4_0\n64,64,q9\n')
        self.fails(1, 'bench', 'gemm', '--shapes', path, saying="shapes.csv:3 'q9'")

    def test_bench_op_times_any_operation(self):
        words = ['bench', 'op', 'norm', 'rows=8 cols=96', '--repeat', 2]
        row, = self.ok(*words, '--json', env=self.env).json()['rows']
        self.assertEqual((row['shape'], row['bytes'], row['operations']), ('norm rows=8 cols=96', 4 * (2 * 8 * 96 + 96), 0))
        self.assertGreater(row['us_median'], 0)
        self.assertNotIn('launches', row)
        report = self.ok(*words, '--all', '--warm-l2', '--json', env=self.env).json()
        self.assertEqual(report['policy'], 'warm')
        self.assertEqual(list(report['peaks']), ['i8', 'bf16', 'f32'])
        self.assertGreater(report['rows'][0]['floor_us'], 0)
        launches = report['rows'][0]['launches']
        self.assertEqual(len({(one['kernel'], one['spec']) for one in launches}), len(launches))
        self.assertTrue(all(one['us_median'] > 0 for one in launches))
        self.assertIn(row['kernel'], [one['kernel'] for one in launches])
        path = self.folder / 'problems.csv'
        path.write_text('# comment\nname,m,n,k,type\na,1,64,64,q8_0\nb,4,96,64,\n')
        rows = self.ok('bench', 'op', 'gemv', 'm=2,n=64,k=64', '--shapes', path, '--repeat', 1, '--json', env=self.env).json()['rows']
        self.assertEqual([row['name'] for row in rows], ['', 'a', 'b'])
        self.assertEqual([row['operations'] for row in rows], [2 * 2 * 64 * 64, 2 * 64 * 64, 2 * 4 * 96 * 64])
        # Of the cache what the rows see: the last one is padding.
        row, = self.ok('bench', 'op', 'attention', 'rows=4 sequences=4 context=16 heads=2', '--repeat', 1, '--json', env=self.env).json()['rows']
        self.assertEqual((row['operations'], row['bytes']), (4 * 2 * 64 * 3 * 16, 4 * 64 * (2 * 4 * 2 + 2 * 3 * 16)))
        table = self.ok('bench', 'op', 'copy', 'rows=9 cols=100', '--repeat', 1, '--all', env=self.env).text
        self.assertIn('of floor', table)
        row, = self.ok('bench', 'op', 'gemv', 'm=2,n=64,k=64', '--all', '--repeat', 1, '--again', 2, '--json', env=self.env).json()['rows']
        again = [launch for launch in row['launches'] if launch.get('again')]
        self.assertTrue(4 <= len(again) <= 6 and len(again) < len(row['launches']), row)
        self.assertIn((row['kernel'], row['spec'], row['us_median']), [(launch['kernel'], launch['spec'], launch['us_median']) for launch in again])
        self.assertIn(row['first_guess_us'], [launch['us_median'] for launch in again])
        self.fails(2, 'bench', 'op', 'norm', 'rows=8 cols=96', '--again', 3, saying='--all')
        self.fails(2, 'bench', 'op', saying='required')
        self.fails(2, 'bench', 'op', 'norm', saying='--shapes')
        self.fails(2, 'bench', 'op', 'norm', 'rows=8 colls=96', saying='colls')
        self.fails(1, 'bench', 'op', 'norm', 'rows=0', saying='rows = 0')
        self.fails(1, 'bench', 'op', 'norm', '--shapes', self.folder / 'none.csv', saying='none.csv')
        path.write_text('rows,cols\n1\n')
        self.fails(1, 'bench', 'op', 'norm', '--shapes', path, saying='problems.csv:2')
        path.write_text('m,n,k\n1,64,64\n1,64,wide\n')
        self.fails(1, 'bench', 'op', 'gemm', '--shapes', path, saying='problems.csv:3 k wide')
        path.write_text('rows,cols\n1,64\n\nmany,64\n')
        self.fails(1, 'bench', 'op', 'norm', '--shapes', path, saying='problems.csv:4 rows many')

    def test_ctrl_c_exits_130_and_keeps_earlier_records(self):
        self.tune(SMALL)
        earlier = self.problems()
        process = self.start('tune', *LONG, '--budget', '60s', env=self.env)
        await_handler(process, signal.SIGINT)
        time.sleep(1.0)  # by now it measures, as a rule; what follows holds wherever it is
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn(b'interrupted', err)
        self.assertLessEqual(earlier, self.problems())
        self.assertEqual(self.verify()['corrupt'], 0)

    def test_a_kill_keeps_earlier_records(self):
        self.tune(SMALL)
        earlier = self.problems()
        for wait in (0.2, 0.6, 1.0):
            process = self.start('tune', *LONG, '--budget', '60s', env=self.env)
            time.sleep(wait)
            self.assertEqual(interrupt(process, signal.SIGKILL), -signal.SIGKILL)
        self.assertLessEqual(earlier, self.problems())
        self.assertEqual(self.verify()['corrupt'], 0)
        self.tune(OTHER)
        self.assertLess(earlier, self.problems())

    def test_candidates_are_tried_in_a_worker_that_ends_with_the_tuning(self):
        for number in (signal.SIGINT, signal.SIGKILL):
            process = self.start('tune', *LONG, '--budget', '60s', env=self.env)
            worker = self.child_of(process)
            self.assertIn('tilewright-worker', pathlib.Path(f'/proc/{worker}/cmdline').read_text())
            interrupt(process, number)
            end = time.monotonic() + PATIENCE
            while self.command_of(worker):
                self.assertLess(time.monotonic(), end, 'the worker outlived the command')
                time.sleep(0.02)

    def test_without_a_worker_it_is_said_once_and_tuned_all_the_same(self):
        env = dict(self.env, TILEWRIGHT_WORKER='/no/such/worker')
        result = self.ok('tune', '--gemm', SMALL, '--gemm', OTHER, '--budget', '300ms', env=env)
        lines = [line for line in result.err.splitlines() if '/no/such/worker' in line]
        self.assertEqual(len(lines), 1, result.err)
        self.assertIn('in this process', lines[0])

    @staticmethod
    def command_of(pid):
        """Of a process; '' where it has ended."""
        try:
            return pathlib.Path(f'/proc/{pid}/cmdline').read_text()
        except OSError:
            return ''

    def child_of(self, process):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            children = pathlib.Path(f'/proc/{process.pid}/task/{process.pid}/children').read_text().split()
            if children and 'tilewright-worker' in self.command_of(children[0]):
                return int(children[0])
            time.sleep(0.02)
        self.fail('there is no worker')

    def test_two_tunings_at_once_both_keep_their_results(self):
        processes = [self.start('tune', '--gemm', gemm, '--budget', 0, env=self.env) for gemm in (SMALL, OTHER)]
        for process in processes:
            _, err = process.communicate(timeout=PATIENCE)
            self.assertEqual(process.returncode, 0, err)
        text = ' '.join(self.problems())
        self.assertIn('n=64', text)
        self.assertIn('n=96', text)
        self.assertEqual(self.verify()['corrupt'], 0)


class Moving(WithCache):

    def test_export_import_and_merge(self):
        self.tune(SMALL, OTHER)
        count = self.stat()['records']['measurements']
        lines = self.ok('cache', 'export', '-', env=self.env).text
        self.assertEqual(sum('"kernel"' in line for line in lines.splitlines()), count)
        path = self.folder / 'records.jsonl'
        self.ok('cache', 'export', path, env=self.env)
        self.assertEqual(path.read_text(), lines)

        there = self.environment(TILEWRIGHT_CACHE_DIR=str(self.folder / 'there'))
        value = self.ok('cache', 'import', path, '--json', env=there).json()
        self.assertEqual((value['added'], value['known'], value['corrupt']), (count, 0, 0))
        value = self.ok('cache', 'import', path, '--json', env=there).json()
        self.assertEqual((value['added'], value['known']), (0, count))
        self.assertEqual(self.ok('cache', 'export', '-', env=there).text, lines)

        merged = self.environment(TILEWRIGHT_CACHE_DIR=str(self.folder / 'merged'))
        value = self.ok('cache', 'merge', self.cache / 'records.sqlite', '--json', env=merged).json()
        self.assertEqual(value['added'], count)
        self.fails(1, 'cache', 'import', self.cache / 'records.sqlite', env=merged, saying='merge')
        self.fails(1, 'cache', 'import', self.folder / 'absent', saying='absent')

    def test_an_export_follows_links_and_replaces_no_device(self):
        self.tune(SMALL)
        lines = self.ok('cache', 'export', '-', env=self.env).text
        folder = self.folder / 'exports'
        folder.mkdir()
        (folder / 'real').write_text('old')
        (folder / 'link').symlink_to('real')
        self.ok('cache', 'export', folder / 'link', env=self.env)
        self.assertTrue((folder / 'link').is_symlink())
        self.assertEqual((folder / 'real').read_text(), lines)
        for path in ('/dev/stdout', '/proc/self/fd/1'):
            self.assertEqual(self.ok('cache', 'export', path, env=self.env).text, lines)
            with open(folder / 'redirected', 'w+b') as out:
                self.ok('cache', 'export', path, env=self.env, stdout=out)
                out.seek(0)
                self.assertEqual(out.read().decode(), lines)
        (folder / 'redirected').unlink()
        os.mkfifo(folder / 'pipe')
        process = self.start('cache', 'export', folder / 'pipe', env=self.env)
        self.assertEqual((folder / 'pipe').read_text(), lines)
        self.assertEqual(process.wait(timeout=PATIENCE), 0)
        self.assertTrue((folder / 'pipe').is_fifo())
        self.fails(1, 'cache', 'export', '/dev/full', env=self.env, saying='/dev/full space')
        self.fails(1, 'cache', 'export', folder, env=self.env, saying='folder')
        self.fails(1, 'cache', 'export', folder / 'no' / 'such', env=self.env, saying='No such file')
        self.fails(1, 'synth', '--preset', 'tiny-test', '-o', folder / 'pipe', saying='not a regular file')
        self.assertEqual(sorted(p.name for p in folder.iterdir()), ['link', 'pipe', 'real'])

    def test_damaged_lines_are_left_out(self):
        self.tune(SMALL)
        lines = self.ok('cache', 'export', '-', env=self.env).text.splitlines(True)
        bad = next(i for i, line in enumerate(lines) if '"kernel"' in line)
        lines[bad] = lines[bad].replace('q4_0', 'q4_1')
        (self.folder / 'damaged.jsonl').write_text(''.join(lines) + 'not json\n')
        there = self.environment(TILEWRIGHT_CACHE_DIR=str(self.folder / 'damaged'))
        result = self.ok('cache', 'import', self.folder / 'damaged.jsonl', '--json', env=there)
        self.assertEqual(result.json()['corrupt'], 2)
        self.assertIn('damaged', result.err)

    def test_listings(self):
        self.tune(SMALL)
        self.assertIn('1 x 64 x 64 q4_0', self.ok('cache', 'ls', env=self.env).text)
        self.assertIn('used', self.ok('cache', 'explain', env=self.env).text)
        shown = self.ok('cache', 'show', '--json', env=self.env).json()['records']
        self.assertEqual(len(shown), self.stat()['records']['measurements'])
        self.assertEqual(self.ok('cache', 'show', 'no-such-kernel', '--json', env=self.env).json()['records'], [])
        self.assertEqual(self.ok('cache', 'show', '--quarantine', '--json', env=self.env).json()['records'], [])

    def test_records_of_another_machine_or_a_changed_kernel_are_kept_and_not_used(self):
        self.tune(SMALL)
        count = self.stat()['records']['measurements']
        capped = dict(self.env, TILEWRIGHT_ISA='scalar')
        value = self.ok('cache', 'explain', '--json', env=capped).json()['measurements']
        self.assertEqual(value, {'other machine': count})
        value = self.ok('cache', 'gc', '--only', 'records', '--json', env=self.env).json()
        self.assertEqual(value, {'stale': 0, 'removed': 0})
        self.assertEqual(self.stat()['records']['measurements'], count)


class Trouble(WithCache):
    """Degraded service: one warning, the run works."""

    def runs(self, warnings, *words, **options):
        result = self.ok('run', self.tiny, '--tokens', '1,2,3', '-n', 2, '--temp', 0, '--json', *words, **options)
        self.assertEqual(len(result.json()['generated_tokens']), 2)
        self.assertEqual(len(result.err.splitlines()), warnings, result.err)
        return result

    def test_a_cache_folder_that_cannot_be_made(self):
        (self.folder / 'file').write_text('')
        for folder in ('/proc/no/such/cache', str(self.folder / 'file' / 'cache')):
            env = self.environment(TILEWRIGHT_CACHE_DIR=folder)
            self.runs(1, env=env)
            result = self.run_cli('tune', '--gemm', SMALL, '--budget', '200ms', env=env)
            self.assertEqual(result.rc, 0, result.err)
            self.assertIn('not kept', result.err)
            result = self.run_cli('doctor', env=env)
            self.assertEqual(result.rc, 1)
            self.assertIn('BAD', result.text)

    def test_a_read_only_store(self):
        self.tune(SMALL)
        path = self.cache / 'records.sqlite'
        before = path.read_bytes()
        self.runs(0, '--cache-mode', 'readonly', env=self.env)
        result = self.run_cli('tune', '--gemm', OTHER, '--budget', '200ms', '--cache-mode', 'readonly', env=self.env)
        self.assertEqual(result.rc, 0, result.err)
        self.assertIn('not kept', result.err)
        self.assertEqual(path.read_bytes(), before)

    def test_a_corrupted_store_is_moved_aside(self):
        self.tune(SMALL)
        path = self.cache / 'records.sqlite'
        path.write_bytes(b'this was a database once' * 500)
        for extra in ('-wal', '-shm'):
            pathlib.Path(str(path) + extra).unlink(missing_ok=True)
        self.runs(1, env=self.env)
        kept = [p for p in self.cache.iterdir() if p.is_file() and p.read_bytes().startswith(b'this was a database once')]
        self.assertEqual(len(kept), 1, list(self.cache.iterdir()))
        self.tune(SMALL)
        self.assertGreater(self.stat()['records']['measurements'], 0)

    def test_a_store_of_a_newer_schema_is_not_touched(self):
        self.tune(SMALL)
        path = self.cache / 'records.sqlite'
        with sqlite3.connect(path) as connection:
            connection.execute('PRAGMA wal_checkpoint(TRUNCATE)')
            connection.execute('PRAGMA user_version = 1000000')
        connection.close()
        self.runs(1, env=self.env)
        connection = sqlite3.connect(path)
        self.assertEqual(connection.execute('PRAGMA user_version').fetchone()[0], 1000000)
        connection.close()

    def test_a_full_disk_while_tuning_keeps_earlier_records(self):
        self.tune(SMALL)
        earlier = self.problems()
        result = self.run_cli('tune', '--gemm', OTHER, '--budget', 0, env=self.env,
                              limits={resource.RLIMIT_FSIZE: 4096})
        self.assertIn(result.rc, (0, 1), result.err)
        self.assertTrue(result.err)
        self.assertLessEqual(earlier, self.problems())
        self.assertEqual(self.verify()['corrupt'], 0)

    def test_strict_mode_fails_without_a_record(self):
        result = self.run_cli('run', self.tiny, '-p', 'a', '-n', 1, '--cache-mode', 'strict', env=self.env)
        self.assertEqual(result.rc, 1)
        self.assertEqual(len(result.err.splitlines()), 1, result.err)

    def test_too_little_memory_for_tuning_is_no_crash(self):
        for mib in (64, 200):
            result = self.run_cli('tune', '--gemm', 'm=1,n=8192,k=8192,type=f32', '--budget', '1s', env=self.env,
                                  limits={resource.RLIMIT_AS: mib << 20})
            self.assertIn(result.rc, (0, 1, 127), result.err)


class Looking(WithCache):

    def test_explain_lists_every_kernel(self):
        kernels = [k['kernel'] for k in self.ok('kernels', '--json', env=self.env).json()['kernels'] if k['op'] == 'gemm']
        value = self.ok('explain', 'gemm', '--m', 8, '--n', 64, '--k', 64, '--type-b', 'q4_1', '--json', env=self.env).json()
        self.assertEqual({c['kernel'] for c in value['candidates']}, set(kernels))
        for candidate in value['candidates']:
            self.has_keys(candidate, 'kernel', 'feasible', 'reason', 'predicted_us', 'measured_us', 'interval_us', 'provenance')
            self.assertEqual(candidate['feasible'], candidate['reason'] == '')
        text = self.ok('explain', 'gemm', '--m', 8, '--n', 64, '--k', 64, '--type-b', 'q4_1', env=self.env).text
        for kernel in kernels:
            self.assertIn(kernel, text)
        self.assertIn('tilewright tune --gemm', text)

    def test_the_tune_command_that_explain_prints_works(self):
        text = self.ok('explain', 'gemm', '--m', 2, '--n', 64, '--k', 64, '--type-b', 'q8_0', '--scaling', 'one-one',
                       env=self.env).text
        problem = text.split('tilewright tune --gemm "')[1].split('"')[0]
        self.tune(problem)
        value = self.ok('explain', 'gemm', '--m', 2, '--n', 64, '--k', 64, '--type-b', 'q8_0', '--scaling', 'one-one', '--json',
                        env=self.env).json()
        self.assertEqual(value['provenance'], 'measured')

    def test_explain_for_a_device_that_is_not_here(self):
        path = self.folder / 'laptop.json'
        path.write_text(json.dumps({'name': 'laptop', 'features': ['avx2'], 'cores': 8, 'llc_bytes': 8 << 20}))
        words = ('explain', 'gemm', '--m', 1, '--n', 64, '--k', 64, '--json', '--device-spec', path)
        value = self.ok(*words, env=self.env).json()
        self.assertIn('laptop/avx2/8 threads', value['device'])
        self.assertNotIn('avx512', value['chosen'])
        self.assertTrue(any(c['reason'].startswith('device') for c in value['candidates']))
        for text, saying in (('{"colour": "red"}', 'colour'), ('{"cores": "two"}', 'cores'), ('{"features": ["sse9"]}', 'features'),
                             ('[]', 'laptop.json'), ('{', 'laptop.json')):
            path.write_text(text)
            self.fails(1, *words, env=self.env, saying=saying)

    def test_explain_says_why_the_system_refuses_amx(self):
        path = self.folder / 'refused.json'
        path.write_text(json.dumps({'name': 'server', 'features': ['avx2', 'avx512', 'avx512vnni'], 'amx_refusal': 'no more tiles'}))
        words = ('explain', 'gemm', '--m', 64, '--n', 64, '--k', 64, '--type-b', 'bf16', '--device-spec', path)
        reasons = {c['kernel']: c['reason'] for c in self.ok(*words, '--json', env=self.env).json()['candidates']}
        for kernel, reason in reasons.items():
            self.assertEqual('no more tiles' in reason, 'amx-tile' in reason, kernel)
        self.assertTrue(any('no more tiles' in reason for reason in reasons.values()))
        self.assertIn('no more tiles', self.ok(*words, env=self.env).text)
        path.write_text(json.dumps({'amx_refusal': 1}))
        self.fails(1, *words, env=self.env, saying='amx_refusal text')

    def test_explain_for_a_gpu_that_is_not_here(self):
        path = self.folder / 'h200.json'
        h200 = {'kind': 'cuda', 'name': 'NVIDIA H200', 'compute_capability': 90, 'sm_count': 132, 'smem_bytes': 232448,
                'l2_bytes': 60 << 20, 'driver': '13.0', 'read_gb_s': 4917, 'f32_gflop_s': 66908, 'bf16_gflop_s': 1070530}
        path.write_text(json.dumps(h200))
        gemm = ('explain', 'gemm', '--k', 4096, '--n', 4096, '--type-a', 'bf16', '--type-b', 'bf16', '--type-c', 'bf16', '--json',
                '--device-spec', path)
        few = self.ok(*gemm, '--m', 1, env=self.env).json()
        self.assertIn('cuda/NVIDIA H200/sm_90', few['device'])
        self.assertTrue(few['chosen'].startswith('gemv_stream.'), few['chosen'])
        many = self.ok(*gemm, '--m', 2048, env=self.env).json()
        self.assertTrue(many['chosen'].startswith('gemm_hopper.'), many['chosen'])
        families = {c['kernel'].split('.')[0] for c in many['candidates'] if c['feasible']}
        self.assertEqual(families, {'gemm_mma', 'gemm_hopper', 'gemm_simt', 'gemv_bf16', 'gemv_stream', 'gemm'}, 'gemm: cuBLASLt')
        odd = self.ok(*gemm, '--m', 2048, '--set', 'align_a=1', env=self.env).json()
        self.assertTrue(any(c['kernel'].startswith('gemm_hopper') and c['reason'].startswith('alignment') for c in odd['candidates']))
        norm = self.ok('explain', 'norm', 'rows=1 cols=4096 type_in=bf16 type_out=bf16', '--json', '--device-spec', path,
                       env=self.env).json()
        self.assertTrue(norm['chosen'].startswith('rmsnorm.'), norm['chosen'])
        for key in ('compute_capability', 'sm_count', 'read_gb_s', 'f32_gflop_s', 'bf16_gflop_s'):
            path.write_text(json.dumps({k: v for k, v in h200.items() if k != key}))
            self.fails(1, *gemm, '--m', 1, env=self.env, saying=key)
        path.write_text(json.dumps(dict(h200, compute_capability=75)))
        self.fails(1, *gemm, '--m', 1, env=self.env, saying='sm_75')
        path.write_text(json.dumps(dict(h200, kind='tpu')))
        self.fails(1, *gemm, '--m', 1, env=self.env, saying='cpu or cuda')

    def test_a_problem_that_no_kernel_takes(self):
        self.fails(1, 'explain', 'gemm', '--m', 1, '--n', 64, '--k', 33, '--type-b', 'q4_0', env=self.env, saying='33 32')
        result = self.run_cli('explain', 'gemm', '--m', 1, '--n', 64, '--k', 64, '--type-a', 'i32', '--json', env=self.env)
        self.assertEqual(result.rc, 1)

    def test_kernels_tells_what_an_isa_excludes(self):
        value = self.ok('kernels', '--json', env=dict(self.env, TILEWRIGHT_ISA='scalar')).json()
        for kernel in value['kernels']:
            self.has_keys(kernel, 'op', 'kernel', 'provider', 'feasible', 'reason', 'fingerprint')
            if 'avx' in kernel['kernel']:
                self.assertFalse(kernel['feasible'], kernel)
                self.assertTrue(kernel['reason'])
        self.assertTrue(any(k['feasible'] for k in value['kernels']))
        self.assertEqual({k['op'] for k in value['kernels']},
                         {'gemm', 'norm', 'rope', 'elementwise', 'copy', 'kv_scatter', 'embedding', 'attention', 'top_k', 'route',
                          'combine'})

    def test_rates_are_measured_once_and_kept_for_the_device_class(self):
        def doctor(*words, **options):
            return self.ok('doctor', '--json', *words, env=dict(self.env, **options)).json()

        def stored():
            return {path: path.read_text() for path in (self.cache / 'rates').glob('*.json')}

        before = doctor()
        self.assertFalse(before['calibrated'])
        self.assertEqual(stored(), {})
        self.tune(SMALL)
        first = stored()
        self.assertEqual(len(first), 1)
        after = doctor()
        self.assertTrue(after['calibrated'])
        self.assertNotEqual(after['rates'], before['rates'])
        self.assertEqual(after['device'], before['device'])
        self.tune(OTHER)
        self.assertEqual(stored(), first)
        self.assertEqual(doctor('--cache-mode', 'refresh')['rates'], before['rates'])
        self.assertTrue(doctor('--calibrate')['calibrated'])
        self.assertNotEqual(stored(), first)
        # Another class has its own; a damaged file is none, and is replaced.
        self.assertFalse(doctor(TILEWRIGHT_ISA='scalar')['calibrated'])
        for path in stored():
            path.write_text('{}')
        self.assertFalse(doctor()['calibrated'])
        self.ok('tune', '--gemm', SMALL, '--budget', 0, '--cache-mode', 'readonly', env=self.env)
        self.assertFalse(doctor()['calibrated'])
        self.tune(SMALL)
        self.assertTrue(doctor()['calibrated'])

    def test_a_calibration_that_cannot_be_kept_is_refused(self):
        self.fails(2, 'doctor', '--calibrate', '--cache-mode', 'readonly', env=self.env, saying='readonly')

    def test_doctor_tells_device_libraries_and_what_is_missing(self):
        value = self.ok('doctor', '--json', env=self.env).json()
        self.has_keys(value, 'findings', 'device', 'read_gb_s', 'llc_bytes_measured', 'cold_bytes')
        told = {finding['what'] for finding in value['findings']}
        self.assertLessEqual({'processor', 'caches', 'threads', 'cache folder', 'SQLite', 'AMX'}, told)
        self.assertTrue(any(what.startswith(('GPU', 'cuda:0')) for what in told), 'none, or the first')
        text = self.ok('doctor', env=self.env).text
        for finding in value['findings']:
            self.assertRegex(text, rf"(?m)^{finding['health']} +{re.escape(finding['what'])} ")

    def doctor(self, *words, **extra):
        """What it finds, and its JSON."""
        value = self.ok('doctor', '--json', *words, env=dict(self.env, **extra)).json()
        return {finding['what']: finding['value'] for finding in value['findings']}, value

    def test_doctor_names_onednn_or_says_that_it_is_not_here(self):
        found, _ = self.doctor()
        self.assertRegex(found['oneDNN'], r'^\d+\.\d+|not included')

    def test_doctor_measures_every_unit_of_the_processor(self):
        found, value = self.doctor()
        units = {'f32': '', 'i8': '', 'bf16': '+bf16', 'amx_i8': '+amx_int8', 'amx_bf16': '+amx_bf16'}
        self.assertEqual(set(value['peaks']), {key for key, suffix in units.items() if suffix in value['device']})
        for peak in value['peaks'].values():
            self.assertIn(f"{peak['gop_s']:.0f}", found['arithmetic'])
            self.assertIn(f"({peak['instruction']})", found['arithmetic'])
        self.assertEqual(value['f32_gflop_s'], value['peaks']['f32']['gop_s'])
        self.assertEqual(value['i8_gop_s'], value['peaks'].get('amx_i8', value['peaks']['i8'])['gop_s'])

    def test_doctor_says_where_the_number_of_threads_comes_from(self):
        found, _ = self.doctor()
        self.assertIn('(affinity and quota; ', found['threads'])
        allowed = found['threads'].split()[0]
        found, _ = self.doctor('--threads', 3)
        self.assertTrue(found['threads'].startswith(f'3 (--threads; affinity and quota allow {allowed}, '), found['threads'])

    def test_peaks_that_are_assumed_count_no_thread_without_a_processor(self):
        found, value = self.doctor('--threads', 64, TILEWRIGHT_ISA='scalar')
        processors = min(64, int(re.search(r'quota allow (\d+)', found['threads'])[1]))
        for unit, rate in (('i8', 'i8_gop_s'), ('f32', 'f32_gflop_s')):
            self.assertEqual(value['peaks'][unit], {'gop_s': value['rates'][rate] * processors, 'instruction': 'assumed'})

    def test_doctor_says_what_caps_the_instruction_sets_or_that_nothing_does(self):
        found, value = self.doctor(TILEWRIGHT_ISA='')
        self.assertNotIn('capped', found['instruction sets'] + found['AMX'])
        capped, _ = self.doctor(TILEWRIGHT_ISA='scalar')
        cap = 'capped by TILEWRIGHT_ISA=scalar'
        self.assertEqual(capped['instruction sets'], f'scalar ({cap})')
        # Only what is there is capped.
        self.assertEqual(capped['AMX'], cap if '/amx' in value['device'] else found['AMX'])


class ExplainOperations(CliTest):

    def test_every_operation_is_explained_by_the_fields_of_its_problem(self):
        for op, problem, chosen in (
                ('norm', 'rows=8 cols=576', 'norm.rms.'), ('rope', 'rows=4 heads=9 head_dim=64 dims=64', 'rope.'),
                ('elementwise', 'function=swiglu rows=4 cols=100', 'elementwise.'), ('copy', 'rows=4 cols=100', 'copy.'),
                ('kv_scatter', 'rows=4 kv_heads=3 head_dim=64 type_cache=f16', 'kv_scatter.'),
                ('embedding', 'rows=4 hidden=576 type_table=q8_0', 'embedding.'),
                ('attention', 'rows=1 heads=9 kv_heads=3 head_dim=64 context=512 type_kv=q8_0', 'attention.')):
            said = self.ok('explain', op, problem, '--json').json()
            self.assertTrue(said['chosen'].startswith(chosen), said['chosen'])
            self.assertEqual(said['provenance'], 'model')
            for field in problem.split():
                self.assertIn(field, said['problem'].split())
            self.assertGreater(len(said['candidates']), 2)

    def test_threads_are_a_launch_parameter_of_short_work(self):
        path = self.folder / 'laptop.json'
        path.write_text(json.dumps({'name': 'laptop', 'features': ['avx2'], 'cores': 8}))
        norm, gemm = ('norm', 'rows=300 cols=576'), ('gemm', '--m', 1, '--n', 64, '--k', 64, '--type-b', 'q4_1')
        for words, others in ((norm, ()), (gemm, (' panels=1',))):
            said = self.ok('explain', *words, '--json', '--device-spec', path).json()
            specs = [c['spec'] for c in said['candidates'] if c['kernel'] == said['chosen']]
            self.assertEqual(said['chosen_spec'], 'swizzle=0 splits=1')
            tails = ('', *others, ' threads=1', ' threads=2', ' threads=4')
            self.assertEqual(sorted(specs), [said['chosen_spec'] + tail for tail in tails])
            self.assertNotIn('threads', said['problem'])
        self.fails(2, 'explain', 'norm', 'rows=8 cols=576 threads=2', saying="'threads': no such field")

    def test_a_problem_that_is_none_is_refused_with_its_field(self):
        self.fails(2, 'explain', 'norm', 'rows=8 colz=5', saying="'colz': no such field")
        self.fails(1, 'explain', 'norm', 'rows=0 cols=5', saying='rows = 0')
        self.fails(2, 'explain', 'convolution', 'rows=8')
        self.assertIsNone(self.run_cli('explain', 'copy', 'type_src=i32 type_dst=f32', '--json').json()['chosen'])


if __name__ == '__main__':
    unittest.main()
