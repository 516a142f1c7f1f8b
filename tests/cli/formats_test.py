"""The files that keep compiled kernels, read by parsers that were written from docs/ alone."""

import subprocess
import unittest

import file_formats
from artifacts_case import ArtifactsCase, nvrtc_is_here


class FormatsTest(ArtifactsCase):

    def test_files_are_what_the_docs_say_byte_by_byte(self):
        key, public, bundle = (self.folder / name for name in ('fk.pem', 'fk.pub', 'formats.twb'))
        subprocess.run(['openssl', 'genpkey', '-algorithm', 'ed25519', '-out', key], check=True)
        subprocess.run(['openssl', 'pkey', '-in', key, '-pubout', '-out', public], check=True)
        self.ok('bundle', 'build', '--list', self.listed(), '--arch', 'sm_80,sm_90a', '-o', bundle, '--sign', key, env=self.env)
        found = file_formats.bundle(bundle.read_bytes())
        for name in ('signature', 'signed'):
            (self.folder / name).write_bytes(found[name])
        subprocess.run(['openssl', 'pkeyutl', '-verify', '-pubin', '-inkey', public, '-rawin', '-in', self.folder / 'signed',
                        '-sigfile', self.folder / 'signature'], check=True, capture_output=True)
        shown = self.ok('bundle', 'show', bundle, '--json', env=self.env).json()
        self.assertEqual((found['digest'], found['signer'].hex()), (shown['digest'], shown['signer'].split(':')[1]))
        entries = [file_formats.entry(path.read_bytes()) for path in self.entry_files()]
        self.assertEqual(len(entries), 4)
        for kernels in (found['entries'], entries):
            for ours, theirs in zip(sorted(kernels, key=lambda one: one['spec']),
                                    sorted(shown['kernels'], key=lambda one: one['spec'])):
                self.assertEqual({name: theirs[name] for name in ('spec', 'symbol', 'launch_abi', 'min_driver', 'threads')},
                                 {name: ours[name] for name in ('spec', 'symbol', 'launch_abi', 'min_driver', 'threads')})
                self.assertEqual((ours['request_key'], ours['action_key']), (theirs['request'], theirs['action']))
                self.assertEqual((len(ours['cubin']), len(ours['ptx'])), (theirs['cubin_bytes'], theirs['ptx_bytes']))
                self.assertEqual((ours['registers'], ours['static_smem'], ours['dynamic_smem']),
                                 tuple(theirs['resources'][name] for name in ('registers', 'static_smem_bytes', 'dynamic_smem_bytes')))
        for path, entry in zip(self.entry_files(), entries):
            self.assertEqual(path.parent.name + path.stem, entry['action_key'])
        # A store that has no entry yet, and its export.
        empty = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / 'empty'))
        self.ok('cache', 'export', self.folder / 'empty.twb', env=empty)
        self.assertEqual(file_formats.bundle((self.folder / 'empty.twb').read_bytes())['entries'], [])

    def test_counters_are_what_the_docs_say_byte_by_byte(self):
        words = ['bundle', 'build', '--list', self.listed(), '-o', self.folder / 'count.twb']
        self.ok(*words, env=self.env)
        self.ok(*words, env=self.env)
        self.ok(*words, '--bundle', self.folder / 'count.twb', env=self.env)
        self.ok(*words, '--cache-mode', 'refresh', env=self.env)
        stat = self.stat()
        found = file_formats.counters((self.cache / 'artifacts' / 'v1' / 'counters').read_bytes())
        self.assertEqual(found['hits'], [stat['hits_by_layer'][name] for name in ('memory', 'bundle', 'user', 'site', 'shared')])
        self.assertEqual((found['hits'], stat['hits'], stat['misses'], stat['compiles']), ([0, 2, 2, 0, 0], 4, 4, 4))
        self.assertEqual(stat['misses_by_layer'], {'memory': {'absent': 8}, 'user': {'absent': 2, 'ignored': 2}})
        self.assertEqual((found['misses'][2][0], found['misses'][2][4]), (2, 2))
        for name in ('compiles', 'publishes', 'publishes_lost', 'evictions', 'compile_failures', 'entries', 'bytes'):
            self.assertEqual(found[name], stat[name], name)
        self.assertAlmostEqual(found['compile_us'] / 1e3, stat['compile_ms'])
        # Two kernels were found in files, which saved what compiling them had taken, less the time to read them.
        self.assertGreater(stat['saved_ms'], 0)
        self.assertLess(stat['saved_ms'], stat['compile_ms'])


if __name__ == '__main__':
    if not nvrtc_is_here():
        print('NVRTC is not here: set TILEWRIGHT_NVRTC')
        raise SystemExit(77)
    unittest.main()
