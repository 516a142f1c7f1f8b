"""The table of embedded sources holds every byte of every file, whatever a C++ compiler would make of it."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / 'tools'))
import embed_sources  # noqa: E402

FILES = {
    'empty.cuh': b'',
    'plain.cu': b'#include "a/b.cuh"\nint x;\n',
    'no_newline.cu': b'int x;\nint y;',
    'odd.cuh': bytes(range(256)) + b'\n' + bytes(reversed(range(256))),
    'digits_after_escapes.cuh': b'\x00\x31\x32\x33\x0178\xff0\n',
    'trigraphs.cuh': b'??= ??/ ??\' ??( ??) ??! ??< ??> ??- ?\n??/\n',
    'escapes.cuh': b'\\n \\" \\\\ \\\n " \'\t\r\n\r\n\v\f',
    'raw.cuh': b'R"tw(x)tw" )" )tw"\n',
    'long.cuh': b'x' * 100000 + b'\n' + b'y' * 70000,
    'lines.cuh': b'\n' * 3000,
    'other_line_ends.cuh': b'a\rb\x0bc\x0cd\x1ce\x85f\r\n',
}

PROBE = r'''
#include <cstdio>
#include "tilewright/kernel_family.h"
int main() {
  for (const auto& file : tilewright::EmbeddedSources()) {
    std::printf("%zu %zu\n", file.name.size(), file.text.size());
    std::fwrite(file.name.data(), 1, file.name.size(), stdout);
    std::fwrite(file.text.data(), 1, file.text.size(), stdout);
  }
}
'''
# Only what the table needs of the header: the test compiles in a second.
HEADER = '''
#pragma once
#include <span>
#include <string_view>
namespace tilewright {
struct SourceFile {
  std::string_view name, text;
};
std::span<const SourceFile> EmbeddedSources();
}
'''


class EmbedSourcesTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / 'src').mkdir()

    def write(self, files):
        for name, data in files.items():
            path = self.root / 'src' / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def embed(self, names, output='table.cc'):
        path = self.root / output
        self.assertEqual(embed_sources.main(['--root', str(self.root / 'src'), '--output', str(path), *names]), 0)
        return path

    def round_trip(self, files):
        """What a program that was linked with the table says it holds."""
        compiler = os.environ.get('CXX') or shutil.which('c++') or shutil.which('g++') or shutil.which('clang++')
        if compiler is None:
            self.fail('no C++ compiler')
        self.write(files)
        table = self.embed(files)
        (self.root / 'tilewright').mkdir(exist_ok=True)
        (self.root / 'tilewright' / 'kernel_family.h').write_text(HEADER)
        (self.root / 'probe.cc').write_text(PROBE)
        # Trigraphs on: the table must not depend on the dialect that it is compiled as.
        subprocess.run([compiler, '-std=c++20', '-trigraphs', '-I', str(self.root), str(table), str(self.root / 'probe.cc'),
                        '-o', str(self.root / 'probe')], check=True, capture_output=True)
        out = subprocess.run([str(self.root / 'probe')], check=True, capture_output=True).stdout
        found, order = {}, []
        while out:
            sizes, out = out.split(b'\n', 1)
            name_size, text_size = map(int, sizes.split())
            name = out[:name_size].decode()
            found[name] = out[name_size:name_size + text_size]
            order.append(name)
            out = out[name_size + text_size:]
        return found, order

    def test_every_byte_survives_the_compiler(self):
        found, order = self.round_trip(FILES)
        self.assertEqual(order, sorted(FILES))
        for name, data in FILES.items():
            self.assertEqual(found[name], data, name)

    def test_no_files_make_an_empty_table(self):
        found, _ = self.round_trip({})
        self.assertEqual(found, {})

    def test_the_table_is_sorted_and_holds_each_file_once(self):
        self.write({'b.cuh': b'b', 'a/z.cuh': b'a'})
        one = self.embed(['b.cuh', 'a/z.cuh', 'b.cuh']).read_text()
        other = self.embed(['a/z.cuh', 'b.cuh'], 'other.cc').read_text()
        self.assertEqual(one, other)
        self.assertLess(one.index('a/z.cuh'), one.index('b.cuh'))

    def test_no_path_of_this_machine_is_in_the_table(self):
        self.write(FILES)
        self.assertNotIn(str(self.root), self.embed(FILES).read_text())

    def test_an_unchanged_table_is_not_written_again(self):
        self.write({'a.cuh': b'a'})
        path = self.embed(['a.cuh'])
        os.utime(path, (1, 1))
        self.embed(['a.cuh'])
        self.assertEqual(path.stat().st_mtime, 1)
        self.write({'a.cuh': b'b'})
        self.embed(['a.cuh'])
        self.assertNotEqual(path.stat().st_mtime, 1)

    def test_a_name_is_looked_up_in_every_root(self):
        self.write({'a.cuh': b'of src'})
        header = self.root / 'include' / 'tilewright' / 'p.h'
        header.parent.mkdir(parents=True)
        header.write_bytes(b'of include')
        path = self.root / 'table.cc'
        self.assertEqual(embed_sources.main(['--root', str(self.root / 'src'), '--root', str(self.root / 'include'),
                                             '--output', str(path), 'a.cuh', 'tilewright/p.h']), 0)
        text = path.read_text()
        self.assertIn('of src', text)
        self.assertIn('of include', text)
        self.assertIn('"tilewright/p.h"', text)

    def test_a_missing_file_is_an_error(self):
        with self.assertRaises(FileNotFoundError):
            self.embed(['absent.cuh'])


if __name__ == '__main__':
    unittest.main()
