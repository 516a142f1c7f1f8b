"""Digests follow exactly the headers that a kernel includes."""

import pathlib
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'tools'))
import fingerprint  # noqa: E402

MANIFEST = '''compiler GNU 12.2.0 x86_64
flags -std=c++20 -O2
ops/a/cpu/a_avx2.cc|-O3 -mavx2
ops/a/cpu/a_scalar.cc|-O3
ops/b/cpu/b_scalar.cc|-O3
'''
FILES = {
    'include/tilewright/types.h': '#pragma once\n',
    'src/core/deep.h': '#include <cstdint>\n',
    'src/ops/a/cpu/a_inner.h': '#include "core/deep.h"\n#include "ops/a/cpu/a_inner.h"\n',
    'src/ops/a/cpu/local.h': '\n',
    'src/ops/a/cpu/a_avx2.cc': '#include "ops/a/cpu/a_inner.h"\n',
    'src/ops/a/cpu/a_scalar.cc': '  #  include "local.h"\n#include <tilewright/types.h>\n',
    'src/ops/b/cpu/b_scalar.cc': '#include <tilewright/types.h>\n#include <missing.h>\n',
    'src/ops/b/cpu/unused.h': '\n',
}


class FingerprintTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)
        for name, content in FILES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(content)

    def digests(self, manifest=MANIFEST):
        return fingerprint.digests(self.root, manifest)[0]

    def changed_by(self, name):
        before = self.digests()
        with open(self.root / name, 'a', encoding='utf-8') as f:
            f.write('// edited\n')
        after = self.digests()
        return {pathlib.Path(tu).name for tu in before if before[tu] != after[tu]}

    def test_editing_a_header_changes_exactly_its_dependants(self):
        self.assertEqual(self.changed_by('src/core/deep.h'), {'a_avx2.cc'})
        self.assertEqual(self.changed_by('src/ops/a/cpu/local.h'), {'a_scalar.cc'})
        self.assertEqual(self.changed_by('include/tilewright/types.h'), {'a_scalar.cc', 'b_scalar.cc'})
        self.assertEqual(self.changed_by('src/ops/b/cpu/unused.h'), set())

    def test_editing_a_unit_changes_only_itself(self):
        self.assertEqual(self.changed_by('src/ops/b/cpu/b_scalar.cc'), {'b_scalar.cc'})

    def test_own_flags_common_flags_and_compiler_count(self):
        before = self.digests()
        own = self.digests(MANIFEST.replace('-mavx2', '-mavx2 -mfma'))
        self.assertEqual([tu for tu in before if own[tu] != before[tu]], ['ops/a/cpu/a_avx2.cc'])
        for old, new in (('-O2', '-O1'), ('12.2.0', '12.3.0')):
            after = self.digests(MANIFEST.replace(old, new))
            self.assertTrue(all(before[tu] != after[tu] for tu in before), old)

    def test_the_place_of_the_tree_does_not_count(self):
        flags = 'flags -std=c++20 -O2'
        here = self.digests(MANIFEST.replace(flags, flags + f' -I{self.root} -ffile-prefix-map={self.root}=.'))
        with tempfile.TemporaryDirectory() as other:
            for name, content in FILES.items():
                (pathlib.Path(other) / name).parent.mkdir(parents=True, exist_ok=True)
                (pathlib.Path(other) / name).write_text(content)
            manifest = MANIFEST.replace(flags, flags + f' -I{other} -ffile-prefix-map={other}=.')
            self.assertEqual(fingerprint.digests(other, manifest)[0], here)

    def test_depfile_names_every_file_read_and_an_unchanged_table_is_not_rewritten(self):
        (self.root / 'manifest').write_text(MANIFEST)
        args = ['--root', str(self.root), '--manifest', str(self.root / 'manifest'),
                '--output', str(self.root / 'out.cc'), '--depfile', str(self.root / 'out.d')]
        self.assertEqual(fingerprint.main(args), 0)
        depfile = (self.root / 'out.d').read_text()
        for name in FILES:
            self.assertEqual(str((self.root / name).resolve()) in depfile, 'unused' not in name, name)
        first = (self.root / 'out.cc').stat().st_mtime_ns
        self.assertEqual(fingerprint.main(args), 0)
        self.assertEqual((self.root / 'out.cc').stat().st_mtime_ns, first)


if __name__ == '__main__':
    unittest.main()
