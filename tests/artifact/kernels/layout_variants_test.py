"""The layout example: four compiles in the first process and none in the second, however the kernels are asked for."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

EXAMPLE = os.environ['TILEWRIGHT_LAYOUT_VARIANTS']


class LayoutVariants(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix='tilewright_layouts_'))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def compiles(self, *words, cwd=None):
        """Runs the example in a process of its own; returns its compiles and the symbols it got."""
        done = subprocess.run([EXAMPLE, self.folder / 'store', *words], cwd=cwd or self.folder, capture_output=True,
                              text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)
        symbols = dict(re.findall(r'^([NT]{2})  (\S+)  ', done.stdout, re.MULTILINE))
        self.assertEqual(set(symbols), {'NT', 'TN', 'NN', 'TT'})
        self.assertEqual(len(set(symbols.values())), 4, 'a symbol of its own for every layout')
        return int(re.search(r'^compiles in this process: (\d+)$', done.stdout, re.MULTILINE).group(1)), symbols

    def check(self, first, later):
        count, symbols = self.compiles(*first)
        self.assertEqual(count, 4)
        for words in later:
            self.assertEqual(self.compiles(*words, cwd='/'), (0, symbols))

    def test_asked_for_when_needed_then_again(self):
        self.check([], [[], []])

    def test_compiled_ahead_then_asked_for_when_needed(self):
        self.check(['--ahead'], [[], ['--ahead']])

    def test_asked_for_when_needed_then_compiled_ahead(self):
        self.check([], [['--ahead'], []])

    def test_another_architecture_has_kernels_of_its_own(self):
        self.assertEqual(self.compiles('--arch', 'sm_80')[0], 4)
        self.assertEqual(self.compiles('--arch', 'sm_90a')[0], 4)
        self.assertEqual(self.compiles('--arch', 'sm_80')[0], 0)


if __name__ == '__main__':
    if not os.path.exists(os.environ.get('TILEWRIGHT_NVRTC', '')):
        print('no NVRTC:', os.environ.get('TILEWRIGHT_NVRTC'))
        sys.exit(77)
    unittest.main()
