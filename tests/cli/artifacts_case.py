"""What tests of bundles and of the cache have in common."""

import os
import pathlib

from harness import CliTest

# Small kernels that every architecture can have, and that compile in a moment.
FEW = 'rmsnorm'


def nvrtc_is_here():
    path = os.environ.get('TILEWRIGHT_NVRTC', '')
    return bool(path) and pathlib.Path(path).exists()


class ArtifactsCase(CliTest):

    def setUp(self):
        self.cache = self.folder / self.id().split('.')[-1]
        self.env = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache))

    def listed(self, arch='sm_90a', family=FEW, count=2):
        """A list file of some kernels of one family, out of a bundle of everything would be slow: from the registry's names."""
        path = self.folder / f'{family}_{arch}_{count}.txt'
        if not path.exists():
            lines = [line for line in self.every(arch) if line.startswith(family + '.')][:count]
            self.assertTrue(lines, f'no {family} for {arch}')
            path.write_text('# a comment\n\n' + '\n'.join(lines) + '\n')
        return path

    def every(self, arch):
        """The specs of the registry, as a strict build of all of them names what is missing."""
        env = self.environment(TILEWRIGHT_CACHE_DIR=str(self.folder / f'strict_{arch}'))
        self.run_cli('bundle', 'build', '--arch', arch, '--all', '--cache-mode', 'strict', '-o', self.folder / 'no.twb', env=env)
        missing = self.folder / f'strict_{arch}' / 'artifacts' / 'missing.txt'
        return [line for line in missing.read_text().splitlines() if line and not line.startswith('#')]

    def stat(self, env=None):
        return self.ok('cache', 'stat', '--json', env=env or self.env).json()['artifacts']

    def entry_files(self):
        return sorted((self.cache / 'artifacts' / 'v1' / 'entries').glob('*/*.twk'))
