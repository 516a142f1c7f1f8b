"""An architecture is one file: no other source names it."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCHITECTURES = ROOT / 'src' / 'model' / 'arch'
NAME = re.compile(r'kName = "([^"]+)"')
# tokenizer.ggml.model calls SentencePiece vocabularies "llama", whatever the architecture; comments may say so.
TOKENIZER_FAMILY = re.compile(r'\.model = "')
# Pre-tokenizers and forms of conversations are called after the first models that had them; these files hold their names.
OTHER_NAMES = tuple(f'src/model/{name}.cc' for name in ('tokenizer/pre_split_families', 'tokenizer/gguf_spec', 'synth/vocabulary', 'chat/forms'))


def named_architectures():
    """Name -> the file that defines it."""
    found = {}
    for path in sorted(ARCHITECTURES.glob('*.cc')):
        for name in NAME.findall(path.read_text(encoding='utf-8')):
            found[name] = path
    return found


def sources():
    for area in ('src', 'include', 'cli', 'examples'):
        for path in sorted((ROOT / area).rglob('*')):
            if path.suffix in ('.cc', '.h') and 'test' not in path.stem:
                yield path


class ArchitectureNames(unittest.TestCase):

    def test_a_name_stands_in_its_own_file_only(self):
        names = named_architectures()
        self.assertTrue(names)
        for name, home in names.items():
            # As a word of its own or as the prefix of a metadata key.
            literal = re.compile(r'"' + re.escape(name) + r'["./]')
            for path in sources():
                if path != home and str(path.relative_to(ROOT)) not in OTHER_NAMES:
                    lines = path.read_text(encoding='utf-8').splitlines()
                    hits = [
                        f'{path.relative_to(ROOT)}:{i}: {line.strip()}'
                        for i, line in enumerate(lines, 1)
                        if literal.search(line.split('//')[0]) and not TOKENIZER_FAMILY.search(line)
                    ]
                    self.assertEqual(hits, [])

    def test_every_file_is_in_the_list(self):
        listed = (ARCHITECTURES / 'list.h').read_text(encoding='utf-8')
        for home in named_architectures().values():
            symbol = re.search(r'const Architecture (k\w+) =', home.read_text(encoding='utf-8'))
            self.assertIsNotNone(symbol, home)
            self.assertIn('&' + symbol.group(1), listed)


if __name__ == '__main__':
    unittest.main()
