"""Every rule of tools/check_layers.py refuses what it forbids and lets pass what it allows."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'tools'))
import check_layers  # noqa: E402

HEADERS = [
    'include/tilewright/types.h', 'src/core/hash.h', 'src/device/cpu/features.h', 'src/device/cuda/driver.h',
    'src/engine/tuner/tuner.h', 'src/ops/gemm/gemm.h', 'src/ops/gemm/cpu/inner.h', 'src/ops/norm/norm.h',
    'src/graph/graph.h', 'src/model/gguf.h', 'src/api/registry.h', 'cli/args.h',
]


class CheckLayersTest(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.addCleanup(self.folder.cleanup)
        for header in HEADERS:
            self.write(header, '#pragma once\n')

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def problems(self, file, include):
        self.write(file, f'#pragma once\n  # include {include}\n')
        found = check_layers.Checker(self.root).check_all()
        (self.root / file).unlink()
        return found

    def assert_allowed(self, file, include):
        self.assertEqual(self.problems(file, include), [])

    def assert_refused(self, file, include, why):
        found = self.problems(file, include)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f'{file}:2: '), found[0])
        self.assertIn(why, found[0])

    def test_a_tree_of_headers_alone_is_clean(self):
        self.assertEqual(check_layers.Checker(self.root).check_all(), [])

    def test_rooms_include_downwards(self):
        order = [('src/core/x.cc', '"core/hash.h"'), ('src/device/cpu/x.cc', '"device/cpu/features.h"'),
                 ('src/engine/x.cc', '"engine/tuner/tuner.h"'), ('src/ops/gemm/x.cc', '"ops/gemm/gemm.h"'),
                 ('src/graph/x.cc', '"graph/graph.h"'), ('src/model/x.cc', '"model/gguf.h"'),
                 ('src/api/x.cc', '"api/registry.h"')]
        for upper, (file, _) in enumerate(order):
            self.assert_allowed(file, '"tilewright/types.h"')
            for lower, (_, include) in enumerate(order):
                if lower <= upper:
                    self.assert_allowed(file, include)
                else:
                    self.assert_refused(file, include, 'lies below')

    def test_operation_rooms_never_include_each_other(self):
        self.assert_refused('src/ops/norm/cpu/x.cc', '"ops/gemm/gemm.h"', 'never include each other')
        self.assert_allowed('src/ops/gemm/cpu/x.cc', '"inner.h"')

    def test_a_file_that_is_missing_still_counts_by_its_name(self):
        self.assert_refused('src/core/x.cc', '"engine/missing.h"', 'lies below')

    def test_a_new_room_must_be_entered_in_the_table(self):
        self.assert_refused('src/extra/x.cc', '"core/hash.h"', 'not in the table')

    def test_parent_folders_are_not_named(self):
        self.assert_refused('src/ops/gemm/cpu/x.cc', '"../gemm.h"', 'parent folder')

    def test_only_cuda_folders_name_cuda(self):
        for header in ('<cuda.h>', '<cuda_bf16.h>', '<cublasLt.h>', '<nvrtc.h>', '<cuda/std/array>', '<nccl.h>'):
            self.assert_refused('src/device/cpu/x.cc', header, 'CUDA')
            self.assert_refused('src/ops/gemm/x.cc', header, 'CUDA')
            self.assert_refused('cli/x.cc', header, 'CUDA')
            self.assert_allowed('src/device/cuda/x.cc', header)
            self.assert_allowed('src/ops/gemm/cuda/x.cc', header)

    def test_command_and_examples_see_public_headers_only(self):
        for area in ('cli', 'examples', 'bindings/python'):
            self.assert_refused(f'{area}/x.cc', '"core/hash.h"', 'include/tilewright only')
            self.assert_allowed(f'{area}/x.cc', '"tilewright/types.h"')
            self.assert_allowed(f'{area}/x.cc', '<CLI/CLI.hpp>')
        self.assert_allowed('cli/x.cc', '"args.h"')

    def test_public_headers_stay_with_the_standard_library(self):
        for include in ('<vector>', '<tl/expected.hpp>', '"tilewright/types.h"'):
            self.assert_allowed('include/tilewright/x.h', include)
        for include in ('<fmt/core.h>', '"core/hash.h"', '<immintrin.h>'):
            self.assert_refused('include/tilewright/x.h', include, 'standard library')

    def test_headers_have_pragma_once(self):
        self.write('src/core/bare.h', '\n')
        found = check_layers.Checker(self.root).check_all()
        self.assertEqual(found, ['src/core/bare.h:1: a header starts with #pragma once'])

    def test_exit_code_says_it(self):
        self.write('src/core/bare.h', '\n')
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(check_layers.main(['--root', str(self.root)]), 1)
        self.assertIn('bare.h', printed.getvalue())


if __name__ == '__main__':
    unittest.main()
