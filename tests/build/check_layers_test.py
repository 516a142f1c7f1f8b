"""Every rule of tools/check_layers.py refuses what it forbids and lets pass what it allows."""

import contextlib
import io
import pathlib
import subprocess
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'tools'))
import check_layers  # noqa: E402

# Every layer owns a public header of its own name here; norm is a second operation room.
PUBLIC = {'core': ['types.h'], 'device': ['device.h'], 'artifact': ['artifact.h'], 'engine': ['stages.h'], 'ops/gemm': ['gemm.h'],
          'ops/norm': ['norm.h', 'cuda/norm_params.h'], 'graph': ['graph.h'], 'model': ['model.h'], 'api': ['tilewright.h']}
HEADERS = [f'include/tilewright/{header}' for headers in PUBLIC.values() for header in headers] + [
    'src/core/hash.h', 'src/device/cpu/features.h', 'src/device/cuda/driver.h',
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

    def check_all(self):
        return check_layers.Checker(self.root, PUBLIC).check_all()

    def problems(self, file, include):
        path = self.root / file
        before = path.read_text() if path.exists() else None
        self.write(file, f'#pragma once\n  # include {include}\n')
        found = self.check_all()
        if before is None:
            path.unlink()
        else:
            path.write_text(before)
        return found

    def assert_allowed(self, file, include):
        self.assertEqual(self.problems(file, include), [])

    def assert_refused(self, file, include, why):
        found = self.problems(file, include)
        self.assertEqual(len(found), 1, found)
        self.assertTrue(found[0].startswith(f'{file}:2: '), found[0])
        self.assertIn(why, found[0])

    def test_a_tree_of_headers_alone_is_clean(self):
        self.assertEqual(self.check_all(), [])

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
            self.assert_allowed('include/tilewright/graph.h', include)
        for include in ('<fmt/core.h>', '"core/hash.h"', '<immintrin.h>'):
            self.assert_refused('include/tilewright/graph.h', include, 'standard library')

    def test_public_headers_include_each_other_downwards(self):
        order = ['types.h', 'device.h', 'artifact.h', 'stages.h', 'gemm.h', 'graph.h', 'model.h', 'tilewright.h']
        for upper, header in enumerate(order):
            for lower, include in enumerate(order):
                if lower <= upper:
                    self.assert_allowed(f'include/tilewright/{header}', f'"tilewright/{include}"')
                else:
                    self.assert_refused(f'include/tilewright/{header}', f'"tilewright/{include}"', 'lies below')

    def test_to_include_a_public_header_is_to_include_its_room(self):
        self.assert_refused('src/core/x.cc', '"tilewright/device.h"', 'core lies below device')
        self.assert_refused('src/engine/x.cc', '<tilewright/gemm.h>', 'engine lies below ops/gemm')
        self.assert_refused('src/graph/x.cc', '"tilewright/model.h"', 'graph lies below model')
        self.assert_allowed('src/graph/x.cc', '"tilewright/gemm.h"')
        self.assert_allowed('src/ops/norm/cuda/x.cc', '"tilewright/cuda/norm_params.h"')

    def test_the_public_headers_of_operations_stay_apart(self):
        self.assert_refused('include/tilewright/norm.h', '"tilewright/gemm.h"', 'never include each other')
        self.assert_refused('src/ops/norm/x.cc', '"tilewright/gemm.h"', 'never include each other')
        self.assert_refused('src/ops/gemm/x.cc', '"tilewright/cuda/norm_params.h"', 'never include each other')

    def test_every_public_header_has_an_owner(self):
        for header in ('extra.h', 'cuda/gemm.h'):
            self.write(f'include/tilewright/{header}', '#pragma once\n')
            found = self.check_all()
            self.assertEqual(len(found), 1, found)
            self.assertTrue(found[0].startswith(f'include/tilewright/{header}:1: no room owns'), found[0])
            (self.root / 'include/tilewright' / header).unlink()

    def test_the_table_of_owners_names_headers_that_exist(self):
        (self.root / 'include/tilewright/cuda/norm_params.h').unlink()
        self.assertEqual(self.check_all(), [
            'tools/check_layers.py: ops/norm owns cuda/norm_params.h, which include/tilewright/ does not have'])

    def write_rooms(self, engine_deps, norm_deps='engine core'):
        self.write('src/core/CMakeLists.txt', 'tilewright_room(core\n  SOURCES hash.cc\n  LIBRARIES fmt::fmt)\n')
        self.write('src/device/CMakeLists.txt', 'tilewright_room(device SOURCES device.cc DEPS core LIBRARIES fmt::fmt)\n')
        self.write('src/engine/CMakeLists.txt', f'# tilewright_room(none DEPS graph)\n'
                                                f'tilewright_room(engine\n  SOURCES x.cc\n  DEPS {engine_deps})\n')
        self.write('src/ops/gemm/CMakeLists.txt', 'set(deps engine)\nlist(APPEND deps core)\n'
                                                  'tilewright_room(ops_gemm SOURCES x.cc DEPS ${deps} LIBRARIES fmt::fmt)\n')
        self.write('src/ops/norm/CMakeLists.txt', f'tilewright_room(ops_norm SOURCES x.cc DEPS {norm_deps})\n')

    def test_deps_name_lower_rooms(self):
        self.write_rooms('device core')
        self.assertEqual(self.check_all(), [])
        for engine, norm, why in (('device core ops_gemm', 'core', 'tilewright_room(engine): DEPS ops_gemm: engine lies below'),
                                  ('core', 'core ops_gemm', 'tilewright_room(ops_norm): DEPS ops_gemm: operation rooms never'),
                                  ('core missing', 'core', 'tilewright_room(engine): DEPS missing: there is no such room')):
            self.write_rooms(engine, norm)
            found = self.check_all()
            self.assertEqual(len(found), 1, found)
            self.assertIn(why, found[0])

    def test_deps_name_what_the_files_include(self):
        for include, room in (('"device/cpu/features.h"', 'device'), ('"tilewright/device.h"', 'device')):
            self.write('src/engine/x.cc', f'#include {include}\n')
            self.write('src/engine/x_test.cc', '#include "device/cpu/features.h"\n')
            self.write_rooms('device')
            self.assertEqual(self.check_all(), [])
            self.write_rooms('core')
            found = self.check_all()
            self.assertEqual(len(found), 1, found)
            self.assertIn(f'tilewright_room(engine): DEPS lack {room}, which src/engine/x.cc includes', found[0])
        # What a lower room links counts.
        self.write('src/ops/gemm/x.cc', '#include "tilewright/device.h"\n')
        self.write_rooms('device')
        self.assertEqual(self.check_all(), [])

    def test_the_libraries_of_one_room_are_told_apart(self):
        self.write_rooms('device core')
        self.write('src/ops/gemm/cpu/CMakeLists.txt', 'tilewright_room(ops_gemm_cpu SOURCES x.cc DEPS core)\n')
        self.write('src/ops/gemm/cpu/x.cc', '#include "ops/gemm/gemm.h"\n')
        found = self.check_all()
        self.assertEqual(len(found), 1, found)
        self.assertIn('tilewright_room(ops_gemm_cpu): DEPS lack ops_gemm,', found[0])

    def test_headers_have_pragma_once(self):
        self.write('src/core/bare.h', '\n')
        found = self.check_all()
        self.assertEqual(found, ['src/core/bare.h:1: a header starts with #pragma once'])

    def test_exit_code_says_it(self):
        self.write('src/core/bare.h', '\n')
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(check_layers.main(['--root', str(self.root)]), 1)
        self.assertIn('bare.h', printed.getvalue())

    def test_this_repository_is_clean(self):
        self.assertEqual(check_layers.Checker(REPO).check_all(), [])


class TouchedTest(unittest.TestCase):
    """--touched on a repository of two commits."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(folder.name)
        self.addCleanup(folder.cleanup)
        self.git('init', '-q')
        self.commit({'src/core/hash.h': '1', 'src/ops/gemm/x.cc': '1', 'src/model/gone.cc': '1', 'docs/a.md': '1'})

    def git(self, *words):
        subprocess.run(['git', '-C', str(self.root), '-c', 'user.name=t', '-c', 'user.email=t@example.org', *words], check=True,
                       stdout=subprocess.DEVNULL)

    def commit(self, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.git('add', '-A')
        self.git('commit', '-q', '-m', 'x')

    def touched(self, revisions):
        with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as errors:
            code = check_layers.main(['--root', str(self.root), '--touched', revisions])
        return code, printed.getvalue(), errors.getvalue()

    def test_rooms_stand_in_layer_order_with_their_files(self):
        (self.root / 'src/model/gone.cc').unlink()
        self.commit({'src/ops/gemm/x.cc': '2', 'src/ops/gemm/cpu/é y.cc': '1', 'include/tilewright/gemm.h': '1',
                     'src/core/new.h': '1', 'src/CMakeLists.txt': '1', 'tests/t.cc': '1', 'README.md': '1'})
        self.assertEqual(self.touched('HEAD~1..HEAD'), (0, """3 rooms, 5 files; elsewhere 3 files
core (1)
  src/core/new.h
ops/gemm (3)
  include/tilewright/gemm.h
  src/ops/gemm/cpu/é y.cc
  src/ops/gemm/x.cc
model (1)
  src/model/gone.cc
./ (1)
  README.md
src/ (1)
  src/CMakeLists.txt
tests/ (1)
  tests/t.cc
""", ''))

    def test_no_change_touches_no_room(self):
        self.assertEqual(self.touched('HEAD..HEAD'), (0, '0 rooms, 0 files; elsewhere 0 files\n', ''))

    def test_an_unknown_revision_is_an_error(self):
        code, printed, errors = self.touched('nowhere..HEAD')
        self.assertEqual((code, printed), (2, ''))
        self.assertIn('nowhere', errors)


if __name__ == '__main__':
    unittest.main()
