"""bundle and cache: compiled kernels on disk, from the command line."""

import os
import pathlib
import subprocess
import unittest

from harness import CliTest

# Small kernels that every architecture can have, and that compile in a moment.
FEW = 'rmsnorm'


def nvrtc_is_here():
    path = os.environ.get('TILEWRIGHT_NVRTC', '')
    return bool(path) and pathlib.Path(path).exists()


class ArtifactsTest(CliTest):

    def setUp(self):
        self.cache = self.folder / self.id().split('.')[-1]
        self.env = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache))

    def listed(self, arch='sm_90a', family=FEW, count=2):
        """A list file of some kernels of one family, out of a bundle of everything would be slow: from the registry's names."""
        path = self.folder / f'{family}_{arch}.txt'
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

    def test_a_first_build_compiles_and_a_second_finds(self):
        first = self.ok('bundle', 'build', '--list', self.listed(), '-o', self.folder / 'a.twb', '--json', env=self.env).json()
        self.assertEqual((first['kernels'], first['compiled']), (2, 2))
        elsewhere = dict(self.env, HOME=str(self.folder / 'nobody'), LANG='C', TILEWRIGHT_LOG='error')
        second = self.ok('bundle', 'build', '--list', self.listed(), '-o', self.folder / 'b.twb', '--json', env=elsewhere,
                         cwd='/').json()
        self.assertEqual((second['kernels'], second['compiled']), (2, 0))
        self.assertEqual(first['digest'], second['digest'])
        self.assertEqual((self.folder / 'a.twb').read_bytes(), (self.folder / 'b.twb').read_bytes())
        stat = self.stat()
        self.assertEqual((stat['entries'], stat['compiles']), (2, 2))
        self.assertGreaterEqual(stat['hits'], 2)
        self.assertGreaterEqual(stat['misses'], 2)
        self.assertGreater(stat['bytes'], 0)
        self.assertGreater(stat['saved_ms'], 0)

    def test_another_cache_gives_the_same_bundle(self):
        other = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / 'other'))
        for name, env in (('one.twb', self.env), ('two.twb', other)):
            self.ok('bundle', 'build', '--list', self.listed(), '-j', 1 if name == 'one.twb' else 4, '-o', self.folder / name, env=env)
        self.assertEqual((self.folder / 'one.twb').read_bytes(), (self.folder / 'two.twb').read_bytes())

    def test_a_bundle_serves_a_strict_process_without_a_compiler(self):
        bundle = self.folder / 'strict.twb'
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, env=self.env)
        bare = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / 'bare'), TILEWRIGHT_NVRTC=str(self.folder / 'no-nvrtc'))
        words = ['bundle', 'build', '--list', self.listed(), '--cache-mode', 'strict', '--json']
        value = self.ok(*words, '--bundle', bundle, '-o', self.folder / 'again.twb', env=bare).json()
        self.assertEqual((value['kernels'], value['compiled']), (2, 0))
        self.assertEqual(bundle.read_bytes(), (self.folder / 'again.twb').read_bytes())
        self.fails(1, *words, '-o', self.folder / 'never.twb', env=bare, saying='rmsnorm')
        self.assertFalse((self.folder / 'never.twb').exists())

    def test_a_bundle_serves_a_strict_process_with_another_compiler(self):
        other = os.environ.get('TILEWRIGHT_NVRTC_OTHER', '')
        if not pathlib.Path(other).is_file():
            self.skipTest('no second NVRTC: set TILEWRIGHT_NVRTC_OTHER')
        bundle = self.folder / 'other.twb'
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, env=self.env)
        env = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / 'other'), TILEWRIGHT_NVRTC=other)
        words = ['bundle', 'build', '--list', self.listed(), '--json']
        value = self.ok(*words, '--cache-mode', 'strict', '--bundle', bundle, '-o', self.folder / 'served.twb', env=env).json()
        self.assertEqual(value['compiled'], 0)
        self.assertEqual(bundle.read_bytes(), (self.folder / 'served.twb').read_bytes())
        # It is another compiler: what it makes itself has other keys.
        self.assertEqual(self.ok(*words, '-o', self.folder / 'own.twb', env=env).json()['compiled'], 2)
        compilers = {row['compiler'] for name in ('served', 'own')
                     for row in self.ok('bundle', 'show', self.folder / f'{name}.twb', '--json', env=env).json()['kernels']}
        self.assertEqual(len(compilers), 2)

    def test_what_strict_misses_can_be_built(self):
        missing = self.cache / 'artifacts' / 'missing.txt'
        words = ['bundle', 'build', '--list', self.listed(), '-o', self.folder / 'm.twb']
        self.fails(1, *words, '--cache-mode', 'strict', env=self.env, saying='rmsnorm')
        self.assertEqual(len([line for line in missing.read_text().splitlines() if line.startswith('rmsnorm.')]), 2)
        self.ok('bundle', 'build', '--list', missing, '-o', self.folder / 'filled.twb', env=self.env)
        self.ok(*words, '--cache-mode', 'strict', '--bundle', self.folder / 'filled.twb', env=self.env)

    def test_arch_replaces_what_a_list_says(self):
        value = self.ok('bundle', 'build', '--list', self.listed(), '--arch', 'sm_80,sm_120', '-o', self.folder / 'archs.twb',
                        '--json', env=self.env).json()
        self.assertEqual(value['kernels'], 4)
        shown = self.ok('bundle', 'show', self.folder / 'archs.twb', '--json', env=self.env).json()
        self.assertEqual({row['arch'] for row in shown['kernels']}, {'sm_80', 'sm_120'})

    def test_a_model_names_its_kernels(self):
        value = self.ok('bundle', 'build', '--model', self.tiny, '--arch', 'sm_90a', '-o', self.folder / 'model.twb', '--json',
                        env=self.env).json()
        shown = self.ok('bundle', 'show', self.folder / 'model.twb', '--json', env=self.env).json()
        self.assertEqual(len(shown['kernels']), value['kernels'])
        families = {row['spec'].split('.')[0] for row in shown['kernels']}
        self.assertLessEqual({'rmsnorm', 'rope_kv'}, families)
        self.assertTrue(all(row['resources']['spill_bytes'] == 0 for row in shown['kernels']))

    def test_a_signature_is_checked(self):
        key, public, other = (self.folder / name for name in ('key.pem', 'pub.pem', 'other.pem'))
        subprocess.run(['openssl', 'genpkey', '-algorithm', 'ed25519', '-out', key], check=True)
        subprocess.run(['openssl', 'pkey', '-in', key, '-pubout', '-out', public], check=True)
        subprocess.run(['openssl', 'genpkey', '-algorithm', 'ed25519', '-out', self.folder / 'k2.pem'], check=True)
        subprocess.run(['openssl', 'pkey', '-in', self.folder / 'k2.pem', '-pubout', '-out', other], check=True)
        bundle = self.folder / 'signed.twb'
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, '--sign', key, env=self.env)
        self.assertTrue(self.ok('bundle', 'verify', bundle, '--key', public, '--json', env=self.env).json()['signed'])
        self.fails(1, 'bundle', 'verify', bundle, '--key', other, env=self.env, saying='sign')
        plain = self.folder / 'plain.twb'
        self.ok('bundle', 'build', '--list', self.listed(), '-o', plain, env=self.env)
        self.fails(1, 'bundle', 'show', plain, '--key', public, env=self.env, saying='sign')

    def test_a_damaged_bundle_is_told(self):
        bundle = self.folder / 'damaged.twb'
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, env=self.env)
        whole = bundle.read_bytes()
        for at in (len(whole) // 2, len(whole) - 1, 70):
            bundle.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
            self.assertEqual(self.run_cli('bundle', 'verify', bundle, env=self.env).rc, 1, f'byte {at}')
        bundle.write_bytes(whole[:-5])
        self.fails(1, 'bundle', 'show', bundle, env=self.env, saying='damaged.twb')

    def test_what_does_not_serve_names_the_field(self):
        bundle = self.folder / 'serves.twb'
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, env=self.env)
        value = self.ok('bundle', 'verify', bundle, '--compute-capability', 80, '--json', env=self.env).json()
        self.assertEqual(({row['field'] for row in value['refused']}, value['serves']), ({'arch'}, 0))
        value = self.ok('bundle', 'verify', bundle, '--driver', 11000, '--json', env=self.env).json()
        self.assertEqual({row['field'] for row in value['refused']}, {'min_driver'})
        value = self.ok('bundle', 'verify', bundle, '--driver', 13000, '--compute-capability', 90, '--json', env=self.env).json()
        self.assertEqual((value['serves'], value['refused']), (2, []))

    def test_cache_shows_moves_and_checks_kernels(self):
        self.ok('bundle', 'build', '--list', self.listed(), '-o', self.folder / 'c.twb', env=self.env)
        rows = self.ok('cache', 'ls', '--json', env=self.env).json()['artifacts']
        self.assertEqual(len(rows), 2)
        self.assertEqual({row['state'] for row in rows}, {'whole'})
        spec = rows[0]['spec']
        self.assertIn('.entry', self.ok('cache', 'show', spec, '--dump', 'ptx', env=self.env).text)
        self.assertIn('TILEWRIGHT_KERNEL', self.ok('cache', 'show', spec, '--dump', 'source', env=self.env).text)
        self.assertTrue(self.ok('cache', 'show', spec, '--dump', 'cubin', env=self.env).out.startswith(b'\x7fELF'))
        self.fails(1, 'cache', 'show', 'rmsnorm', '--dump', 'ptx', env=self.env, saying='exactly one')
        value = self.ok('cache', 'verify', '--recompile', '--json', env=self.env).json()['artifacts']
        self.assertEqual((value['good'], value['recompiled'], value['differ']), (2, 2, 0))
        value = self.ok('cache', 'export', self.folder / 'moved.twb', '--json', env=self.env).json()
        self.assertEqual((value['kernels'], value['left_out']), (2, 0))
        there = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / 'there'))
        value = self.ok('cache', 'import', self.folder / 'moved.twb', '--json', env=there).json()
        self.assertEqual((value['added'], value['known']), (2, 0))
        value = self.ok('cache', 'import', self.folder / 'moved.twb', '--json', env=there).json()
        self.assertEqual((value['added'], value['known']), (0, 2))
        value = self.ok('bundle', 'build', '--list', self.listed(), '-o', self.folder / 'd.twb', '--json', env=there).json()
        self.assertEqual(value['compiled'], 0)
        self.ok('cache', 'gc', '--unreachable', env=self.env)
        self.assertEqual(self.stat()['entries'], 2)

    def test_what_a_store_holds_does_not_change_a_bundle(self):
        words = ['bundle', 'build', '--list', self.listed(), '-o']
        self.ok(*words, self.folder / 'whole.twb', env=self.env)
        self.ok(*words, self.folder / 'thin.twb', '--no-ptx', '--no-source', env=self.env)
        self.assertLess((self.folder / 'thin.twb').stat().st_size, (self.folder / 'whole.twb').stat().st_size)
        there = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / 'there'))
        self.ok('cache', 'import', self.folder / 'thin.twb', env=there)
        self.ok(*words, self.folder / 'thin2.twb', '--no-ptx', '--no-source', env=there)
        self.assertEqual(self.stat(there)['compiles'], 0)
        self.ok(*words, self.folder / 'whole2.twb', env=there)
        for name in ('thin', 'whole'):
            self.assertEqual((self.folder / f'{name}.twb').read_bytes(), (self.folder / f'{name}2.twb').read_bytes())

    def test_a_kernel_of_a_bundle_can_be_looked_into(self):
        bundle = self.folder / 'look.twb'
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, env=self.env)
        there = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / 'there'))
        spec = self.ok('bundle', 'show', bundle, '--json', env=there).json()['kernels'][0]['spec']
        self.assertIn('.entry', self.ok('cache', 'show', spec, '--bundle', bundle, '--dump', 'ptx', env=there).text)

    def test_checking_without_a_compiler_is_no_success(self):
        self.ok('bundle', 'build', '--list', self.listed(), '-o', self.folder / 'v.twb', env=self.env)
        result = self.run_cli('cache', 'verify', '--recompile', '--json', '--nvrtc', self.folder / 'no-nvrtc', env=self.env)
        told = result.json()['artifacts']
        self.assertEqual((result.rc, told['good'], told['recompiled'], told['not_recompiled']), (1, 2, 0, 2))
        self.assertIn('no-nvrtc', told['why_not'])
        self.assertEqual(self.run_cli('cache', 'verify', '--nvrtc', self.folder / 'no-nvrtc', env=self.env).rc, 0)

    def test_a_damaged_entry_is_set_aside_and_made_again(self):
        words = ['bundle', 'build', '--list', self.listed(), '-o', self.folder / 'e.twb', '--json']
        self.ok(*words, env=self.env)
        place = pathlib.Path(self.ok('cache', 'ls', '--json', env=self.env).json()['artifacts'][0]['place'])
        whole = place.read_bytes()
        place.write_bytes(whole[:-9])
        self.assertEqual(self.run_cli('cache', 'verify', env=self.env).rc, 1)
        self.assertEqual(self.ok(*words, env=self.env).json()['compiled'], 1)
        self.assertEqual(self.stat()['quarantined'], 1)
        self.ok('cache', 'verify', env=self.env)

    def test_explain_tells_a_hit_and_a_miss_field_by_field(self):
        self.ok('bundle', 'build', '--list', self.listed(count=2), '-o', self.folder / 'f.twb', env=self.env)
        spec = self.ok('cache', 'ls', '--json', env=self.env).json()['artifacts'][0]['spec']
        told = self.ok('cache', 'explain', spec, '--json', env=self.env).json()['artifact']
        self.assertTrue(any(layer['hit'] for layer in told['layers']))
        other = spec.replace('.sm_90a.', '.sm_80.')
        told = self.ok('cache', 'explain', other, '--json', env=self.env).json()['artifact']
        self.assertFalse(any(layer['hit'] for layer in told['layers']))
        fields = {row['field']: (row['wanted'], row['stored']) for row in told['differences']}
        self.assertEqual(fields['arch'], ('sm_80', 'sm_90a'))
        self.assertIn('arch', self.ok('cache', 'explain', other, env=self.env).text)

    def test_a_bundle_that_could_not_be_written_compiles_nothing(self):
        rsa = self.folder / 'rsa.pem'
        subprocess.run(['openssl', 'genpkey', '-algorithm', 'RSA', '-out', rsa], check=True, capture_output=True)
        words = ['bundle', 'build', '--list', self.listed(), '-o']
        self.fails(1, *words, self.folder / 'no' / 'such' / 'w.twb', env=self.env, saying='such')
        self.fails(1, *words, '', env=self.env, saying='name')
        self.fails(1, *words, self.folder / 's.twb', '--sign', rsa, env=self.env, saying='rsa.pem')
        self.fails(1, *words, self.folder / 's.twb', '--sign', self.folder / 'no-key', env=self.env, saying='no-key')
        self.assertEqual(self.stat()['compiles'], 0)
        self.assertFalse((self.folder / 's.twb').exists())

    def test_wrong_words(self):
        out = self.folder / 'w.twb'
        self.fails(2, 'bundle', 'build', '--arch', 'sm_90a', '-o', out, saying='--all')
        self.fails(2, 'bundle', 'build', '--all', '-o', out, saying='--arch')
        self.fails(2, 'bundle', 'build', '--all', '--list', self.listed(), '-o', out, saying='--arch')
        for arch in ('hopper', 'sm_90b', 'sm_80,', ''):
            self.fails(2, 'bundle', 'build', '--arch', arch, '--all', '-o', out, saying='sm_90a')
        self.fails(1, 'bundle', 'build', '--arch', 'sm_75', '--all', '-o', out, saying='sm_75')
        (self.folder / 'binary').write_bytes(b'\x1b[31m\x00\xff\n')
        self.fails(1, 'bundle', 'build', '--list', self.folder / 'binary', '-o', out, saying='\\x1b[31m\\x00\\xff')
        self.fails(1, 'cache', 'explain', 'rmsnorm.f32.sm_80.oops', env=self.env, saying='segments')
        self.fails(2, 'cache', 'show', '--dump', 'ptx', '--json', env=self.env, saying='--dump')
        self.fails(1, 'bundle', 'build', '--list', self.folder / 'absent', '-o', out, saying='absent')
        (self.folder / 'bad.txt').write_text('rmsnorm.what\n')
        self.fails(1, 'bundle', 'build', '--list', self.folder / 'bad.txt', '-o', out, saying='bad.txt')
        self.fails(1, 'bundle', 'show', self.folder / 'absent.twb', saying='absent.twb')
        self.fails(1, 'bundle', 'show', self.tiny, saying='tiny.gguf')
        self.fails(2, 'bundle', 'build', '--list', self.listed(), '--nvrtc', self.folder / 'no-nvrtc', '-o', out, env=self.env,
                   saying='no-nvrtc')
        self.assertFalse(out.exists())


if __name__ == '__main__':
    if not nvrtc_is_here():
        print('NVRTC is not here: set TILEWRIGHT_NVRTC')
        raise SystemExit(77)
    unittest.main()
