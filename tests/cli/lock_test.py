"""tune --write-lock, --check and --report: choices under version control, and pages of HTML."""

import html.parser
import json
import os
import shutil
import signal
import unittest

from harness import CliTest, await_handler, interrupt

SMALL = ('--gemm', 'm=1,n=64,k=64,type=q4_0')
OTHER = ('--gemm', 'm=4,n=96,k=64,type=q8_0')
#: With the scalar kernels only.
ONE_CANDIDATE = ('--op', 'top_k rows=2 cols=100')
HEADER = '{"format":"tilewright.lock","schema":1}'


class LockCase(CliTest):

    def setUp(self):
        self.home = self.folder / self.id().split('.')[-1]
        self.home.mkdir()
        self.env = self.environment(TILEWRIGHT_CACHE_DIR=str(self.home / 'cache'))
        self.lock = self.home / 'tilewright.lock'

    def cli(self, rc, *words, **options):
        options.setdefault('env', self.env)
        result = self.run_cli(*words, cwd=self.home, **options)
        self.assertEqual(result.rc, rc, f'{words}: {result.text}{result.err}')
        return result

    def check(self, rc, *words, **options):
        return self.cli(rc, 'tune', *words, '--check', '--json', **options).json()

    def lines(self):
        header, *lines = self.lock.read_text().splitlines()
        self.assertEqual(header, HEADER)
        return [json.loads(line) for line in lines]

    def relock(self, *lines):
        self.lock.write_text('\n'.join([HEADER, *map(json.dumps, lines)]) + '\n')

    def explain(self):
        return self.cli(0, 'explain', 'gemm', '--m', 1, '--n', 64, '--k', 64, '--type-b', 'q4_0', '--json').json()


class Lock(LockCase):

    def test_what_is_written_agrees_and_is_written_again_as_the_same_bytes(self):
        said = self.cli(0, 'tune', self.tiny, '--write-lock').text
        first = self.lock.read_bytes()
        problems = len(self.lines())
        self.assertIn(f'{problems} problems locked in tilewright.lock', said)
        self.cli(0, 'tune', self.tiny, '--write-lock')
        self.assertEqual(self.lock.read_bytes(), first)
        self.cli(0, 'tune', self.tiny, '--write-lock', 'sub.lock', '--json')
        self.assertEqual((self.home / 'sub.lock').read_bytes(), first)
        body = first.decode().splitlines()[1:]
        keys = [(line['device'], line['op'], line['problem']) for line in map(json.loads, body)]
        self.assertEqual(keys, sorted(keys))
        # Words where a file may follow: FILE is the lock's where something else says what to check, else the MODEL's.
        for words in ([self.tiny, '--check'], ['--check', self.tiny], [self.tiny, '--check', 'sub.lock'],
                      ['--check=sub.lock', self.tiny]):
            text = self.cli(0, 'tune', *words).text
            self.assertRegex(text, rf'^{problems} of {problems} problems agree with \S+\n$')

    def test_choices_come_from_the_records_and_nothing_is_measured(self):
        self.cli(0, 'tune', *SMALL, '--write-lock')
        self.check(0, *SMALL)
        self.assertEqual(self.cli(0, 'cache', 'stat', '--only', 'records', '--json').json()['records']['measurements'], 0)
        self.cli(0, 'tune', *SMALL, '--budget', 0)
        before = self.cli(0, 'cache', 'show', '--json', '--only', 'records').text
        written = self.cli(0, 'tune', *SMALL, '--write-lock', '--json').json()
        self.assertEqual(written['by'], {'measured': 1})
        self.assertEqual(written['problems'], 1)
        said = self.explain()
        self.assertEqual([(line['kernel'], line['spec']) for line in self.lines()], [(said['chosen'], said['chosen_spec'])])
        row, = self.check(0, *SMALL)['rows']
        self.assertEqual(row['provenance'], 'measured')
        self.assertEqual(self.cli(0, 'cache', 'show', '--json', '--only', 'records').text, before)

    def test_a_drift_is_one_line_with_both_launches_and_who_answers(self):
        self.cli(0, 'tune', *SMALL, *OTHER, '--write-lock')
        said, lines = self.explain(), self.lines()
        at = next(i for i, line in enumerate(lines) if line['problem'] == said['problem'])
        feasible = [c for c in said['candidates'] if c['feasible']]
        other_kernel = next(c for c in feasible if c['kernel'] != said['chosen'])
        rejected = next(c for c in said['candidates'] if not c['feasible'])
        cases = [('other kernel', other_kernel['kernel'], other_kernel['spec'], ''),
                 ('other kernel', 'gemm.of.yesterday', 'swizzle=0 splits=1', 'the locked kernel is not in this build'),
                 ('other kernel', rejected['kernel'], 'swizzle=0 splits=1', rejected['reason']),
                 ('other launch', said['chosen'], said['chosen_spec'] + ' tide=3', 'the locked kernel does not offer that launch')]
        cases += [('other launch', c['kernel'], c['spec'], '') for c in feasible
                  if c['kernel'] == said['chosen'] and c['spec'] != said['chosen_spec']][:1]
        for verdict, kernel, spec, trouble in cases:
            self.relock(*lines[:at], dict(lines[at], kernel=kernel, spec=spec), *lines[at + 1:])
            found = self.check(1, *SMALL, *OTHER)
            self.assertEqual((found['agrees'], found['agreeing'], found['drifted'], found['missing']), (False, 1, 1, 0))
            row = next(row for row in found['rows'] if row['verdict'] != 'agrees')
            self.assertEqual((row['verdict'], row['locked_kernel'], row['locked_spec']), (verdict, kernel, spec))
            self.assertEqual((row['kernel'], row['spec'], row['provenance']), (said['chosen'], said['chosen_spec'], 'model'))
            self.assertIn(trouble, row['trouble'])
            self.assertEqual(row['trouble'] == '', trouble == '')
            text = self.cli(1, 'tune', *SMALL, *OTHER, '--check').text.splitlines()
            self.assertEqual(len(text), 2, text)
            self.assertIn(f'locked {kernel}, {spec}; now {said["chosen"]}, {said["chosen_spec"]} (model)', text[0])
            self.assertTrue(text[0].endswith(row['trouble']), text[0])
            self.assertEqual(text[1], '1 of 2 problems agree with tilewright.lock, 1 drifted')

    def test_problems_that_are_not_named_stay_in_the_lock_and_are_not_checked(self):
        self.cli(0, 'tune', *SMALL, '--write-lock')
        found = self.check(1, *SMALL, *OTHER)
        self.assertEqual((found['agreeing'], found['missing'], found['drifted']), (1, 1, 0))
        text = self.cli(1, 'tune', *SMALL, *OTHER, '--check').text
        self.assertIn(': not in the lock; now ', text)
        self.assertIn('1 of 2 problems agree with tilewright.lock, 1 not in it\n', text)
        self.cli(0, 'tune', *OTHER, '--write-lock')
        self.assertEqual(len(self.lines()), 2)
        self.check(0, *SMALL, *OTHER)
        self.assertEqual(self.check(0, *OTHER)['not_named'], 1)

    def test_every_device_class_has_lines_of_its_own(self):
        self.cli(0, 'tune', *SMALL, '--write-lock')
        here, = self.lines()
        self.relock(dict(here, device='cuda/some other'))
        found = self.check(1, *SMALL)
        self.assertEqual(found['other_devices'], ['cuda/some other'])
        text = self.cli(1, 'tune', *SMALL, '--check').text
        self.assertEqual(len(text.splitlines()), 1)
        self.assertIn(f'tilewright.lock has no line for {here["device"]}, only for cuda/some other', text)
        self.cli(0, 'tune', *SMALL, '--write-lock')
        self.assertEqual(self.lines(), [here, dict(here, device='cuda/some other')])
        self.check(0, *SMALL)
        self.check(1, *SMALL, env=dict(self.env, TILEWRIGHT_ISA='scalar'))
        self.relock()
        self.assertIn('nor for any other device', self.cli(1, 'tune', *SMALL, '--check').text)

    def test_a_problem_with_one_candidate_is_locked_too(self):
        env = dict(self.env, TILEWRIGHT_ISA='scalar')
        self.assertEqual(self.cli(0, 'tune', *ONE_CANDIDATE, '--json', env=env).json()['only'], 1)
        self.cli(0, 'tune', *ONE_CANDIDATE, '--write-lock', env=env)
        self.assertEqual(len(self.lines()), 1)
        self.check(0, *ONE_CANDIDATE, env=env)

    def test_a_lock_that_cannot_be_used_is_one_line_with_what_to_do(self):
        def fails(saying, option='--check'):
            result = self.cli(1, 'tune', *SMALL, option, 'my.lock')
            self.assertEqual(result.text, '')
            self.assertEqual(len(result.err.splitlines()), 1, result.err)
            self.assertIn(saying, result.err)

        fails('cannot open my.lock: No such file or directory; to write it: the same command with --write-lock')
        self.cli(0, 'tune', *SMALL, '--write-lock', 'my.lock')
        path = self.home / 'my.lock'
        line = path.read_text().splitlines()[1]
        for text, saying in ((f'{HEADER}\n{line}\n{line[:-9]}\n', 'my.lock:3: not a JSON object; correct or remove the line'),
                             (f'{HEADER}\n<<<<<<< HEAD\n{line}\n', 'my.lock:2: an unresolved merge conflict'),
                             (HEADER.replace('1', '2') + '\n', 'my.lock:1: schema 2 is of a later version'),
                             ('', 'my.lock:1: this is no lock'), ('{}\n', 'my.lock:1: this is no lock')):
            path.write_text(text)
            fails(saying)
            fails(saying, '--write-lock')
            self.assertEqual(path.read_text(), text, 'left as it was')
        shutil.copy(self.tiny, path)
        fails('my.lock:1: this is no lock')
        path.unlink()
        path.mkdir()
        fails('my.lock')
        fails('my.lock: it is a folder', '--write-lock')
        self.assertEqual(sorted(os.listdir(self.home)), ['cache', 'my.lock'], 'no temporary file stays')

    def test_strict_mode_locks_only_what_records_answer(self):
        strict = ('--cache-mode', 'strict')
        result = self.cli(1, 'tune', *SMALL, '--write-lock', *strict)
        self.assertIn('no record answers for it', result.err)
        self.assertFalse(self.lock.exists())
        self.cli(0, 'tune', *SMALL, '--budget', 0)
        self.cli(0, 'tune', *SMALL, '--write-lock', *strict)
        self.check(0, *SMALL, *strict)
        self.cli(0, 'tune', *OTHER, '--write-lock')
        found = self.check(1, *SMALL, *OTHER, *strict)
        self.assertEqual((found['agreeing'], found['failed']), (1, 1))

    def test_words_that_contradict_each_other(self):
        for words, saying in ((['--check', '--write-lock'], '--check --write-lock'), (['--check', '--budget', '1s'], '--check --budget'),
                              (['--write-lock', '--remeasure'], '--write-lock --remeasure'), (['--check', '--seed', 2], '--seed'),
                              (['--write-lock', '--report', 'x.html'], '--report --write-lock')):
            self.fails(2, 'tune', self.tiny, *words, saying=saying)
        self.fails(2, 'tune', '--check', saying='nothing to check MODEL --gemm')
        self.fails(2, 'tune', '--write-lock', saying='nothing to lock MODEL --gemm')


class Page(html.parser.HTMLParser):
    """Tags that are closed in order, the text of every cell, and nothing from elsewhere."""

    VOID = {'meta', 'rect', 'path'}

    def __init__(self, text):
        super().__init__()
        self.open, self.rows, self.bars, self.titles, self.words = [], [], 0, [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open
        # The table after the facts.
        self.columns, *self.rows = [row for row in self.rows if len(row) > 2]

    def handle_starttag(self, tag, attrs):
        assert tag not in ('script', 'link', 'img', 'iframe', 'object'), tag
        for name, value in attrs:
            assert name not in ('src', 'href') and not name.startswith('on'), name
            if name == 'title':
                self.titles.append(value)
        if tag not in self.VOID:
            self.open.append(tag)
        self.bars += tag == 'svg'
        if tag == 'tr':
            self.rows.append([])
        if tag in ('td', 'th'):
            self.rows[-1].append('')

    def handle_startendtag(self, tag, attrs):
        assert tag in self.VOID, tag

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag

    def handle_data(self, data):
        self.words.append(data)
        if 'td' in self.open or 'th' in self.open:
            self.rows[-1][-1] += data

    def cells(self, column):
        at = self.columns.index(column)
        return [row[at] for row in self.rows]


class Report(LockCase):

    def page(self, name='x.html'):
        text = (self.home / name).read_text()
        self.assertTrue(text.startswith('<!DOCTYPE html>'))
        for word in ('prefers-color-scheme: dark', 'color-scheme: light dark', '<meta charset="utf-8">'):
            self.assertIn(word, text)
        for word in ('http:', 'https:', 'url(', '@import'):
            self.assertNotIn(word, text)
        return Page(text)

    def test_a_page_has_the_rows_of_the_report_and_what_they_stand_on(self):
        name = 'a <b> & "c" \'d\'.gguf'
        shutil.copy(self.tiny, self.home / name)
        report = self.cli(0, 'tune', name, *SMALL, '--m', '1,4', '--budget', '2s', '--json', '--report', 'x.html').json()
        page = self.page()
        rows = report['rows']
        self.assertEqual(page.titles, [f'{row["op"]} {row["problem"]}' for row in rows])
        self.assertEqual(page.cells('kernel'), [row['kernel'] or '-' for row in rows])
        self.assertEqual(page.cells('launch'), [row['spec'] or '-' for row in rows])
        for key in ('candidates', 'timed', 'quarantined'):
            self.assertEqual(page.cells(key), [str(row[key]) for row in rows])
        self.assertEqual(page.cells('trouble'), [row['trouble'] or row['inconclusive'] for row in rows])
        self.assertEqual(page.bars, sum(row['gain'] is not None for row in rows))
        for by, row in zip(page.cells('by'), rows):
            self.assertEqual(by == 'only candidate', row['only'])
            self.assertEqual(by == 'measured', row['conclusive'] and not row['only'] and not row['skipped'])
        words = ' '.join(page.words)
        for word in (name, '2s', 'gemm ' + SMALL[1], 'UTC', self.cli(0, '--version').text.strip(),
                     self.cli(0, 'doctor', '--json').json()['device']):
            self.assertIn(word, words)

    def test_what_was_not_decided_is_said_as_in_the_table(self):
        # On any machine one of these ends in the middle of a problem; each goes on with what the one before left.
        for budget in (0.02, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2):
            said = self.cli(0, 'tune', self.tiny, '--budget', f'{budget}s', '--report', 'x.html').text.splitlines()
            words = self.page().words
            reasons = [line for line in said if ' inconclusive: ' in line]
            for line in reasons + [line for line in said if ' problems tuned in ' in line]:
                self.assertIn(line, words)
            if reasons:
                self.assertIn('Not decided', words)
                return
        self.fail('every problem was decided or not reached')

    def test_a_problem_with_one_candidate_is_a_row_too(self):
        self.cli(0, 'tune', *ONE_CANDIDATE, '--report', 'x.html', env=dict(self.env, TILEWRIGHT_ISA='scalar'))
        self.assertEqual(self.page().cells('by'), ['only candidate'])
        self.assertEqual(self.page().cells('gain (95 %)'), ['-'])

    def test_a_path_that_cannot_be_written_is_found_out_before_the_tuning(self):
        (self.home / 'folder').mkdir()
        for path, saying in (('none/x.html', 'No such file or directory'), ('folder', 'it is a folder'),
                             ('/dev/null', 'not a regular file')):
            result = self.cli(1, 'tune', *SMALL, '--budget', 0, '--report', path)
            self.assertEqual(len(result.err.splitlines()), 1, result.err)
            self.assertIn(path, result.err)
            self.assertIn(saying, result.err)
            self.assertEqual(result.text, '')
        self.assertFalse((self.home / 'cache').exists(), 'nothing was measured')
        self.fails(2, 'tune', *SMALL, '--report', '', saying='--report: empty')

    def test_a_tuning_that_fails_leaves_the_old_page(self):
        path = self.home / 'x.html'
        path.write_text('old')
        self.cli(1, 'tune', 'none.gguf', '--report', 'x.html')
        self.assertEqual(path.read_text(), 'old')
        self.assertEqual(os.listdir(self.home).count('x.html'), 1)
        self.assertEqual([name for name in os.listdir(self.home) if name.endswith('.tmp')], [])

    def test_an_interrupted_tuning_writes_what_it_has(self):
        long = [word for m in (64, 128, 256) for word in ('--gemm', f'm={m},n=2048,k=2048,type=q4_0')]
        process = self.start('tune', *long, '--budget', 0, '--report', 'x.html', env=self.env, cwd=self.home)
        await_handler(process, signal.SIGINT)
        self.assertEqual(interrupt(process), 130)
        self.assertIn('The tuning was interrupted.', self.page().words)

    def test_a_check_has_a_page_of_the_comparison(self):
        self.cli(0, 'tune', *SMALL, *OTHER, '--write-lock')
        self.cli(0, 'tune', *SMALL, *OTHER, '--check', '--report', 'x.html')
        self.assertEqual(self.page().cells('verdict'), ['agrees', 'agrees'])
        first, second = self.lines()
        self.relock(first, dict(second, kernel='gemm.<b>'))
        self.cli(1, 'tune', *SMALL, *OTHER, '--check', '--report', 'x.html')
        page = self.page()
        self.assertEqual(page.cells('verdict'), ['other kernel', 'agrees'], 'what differs comes first')
        self.assertEqual(page.cells('locked kernel'), ['gemm.<b>', first['kernel']])
        self.assertEqual(page.cells('kernel now'), [second['kernel'], first['kernel']])
        self.assertEqual(page.cells('trouble'), ['the locked kernel is not in this build', ''])
        self.assertIn('1 of 2 problems agree with tilewright.lock, 1 drifted', page.words)


if __name__ == '__main__':
    unittest.main()
