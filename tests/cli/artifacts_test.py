"""bundle and cache: compiled kernels on disk, from the command line."""

import json
import os
import pathlib
import signal
import struct
import subprocess
import time
import unittest

import file_formats
from artifacts_case import ArtifactsCase, nvrtc_is_here


class ArtifactsTest(ArtifactsCase):

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
        spilling = {row['spec'].split('.')[0] for row in shown['kernels'] if row['resources']['spill_bytes'] > 0}
        self.assertLessEqual(spilling, {'gemm_chain'}, 'its limits allow a few registers')

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

    def test_an_interrupted_check_says_that_it_is_not_all(self):
        self.ok('bundle', 'build', '--list', self.listed(count=8), '-o', self.folder / 'v.twb', env=self.env)
        counters = self.cache / 'artifacts' / 'v1' / 'counters'
        for _ in range(3):  # a busy machine may let it come to its end first
            before = file_formats.counters(counters.read_bytes())['compiles']
            check = self.start('cache', 'verify', '--recompile', '-j', 1, '--json', '--only', 'artifacts', env=self.env)
            while check.poll() is None and file_formats.counters(counters.read_bytes())['compiles'] == before:
                time.sleep(0.005)
            check.send_signal(signal.SIGINT)
            out, err = check.communicate(timeout=60)
            if check.returncode != 0:
                break
        self.assertEqual((check.returncode, err.decode()[:23]), (130, 'tilewright: interrupted'))
        told = json.loads(out)['artifacts']
        self.assertEqual((told['cancelled'], told['troubles']), (True, []))
        self.assertLess(told['recompiled'], 8)

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
        self.fails(1, *words, self.folder / 's.twb', '--sign', rsa, env=self.env, saying='rsa.pem')
        self.fails(1, *words, self.folder / 's.twb', '--sign', self.folder / 'no-key', env=self.env, saying='no-key')
        self.assertEqual(self.stat()['compiles'], 0)
        self.assertFalse((self.folder / 's.twb').exists())

    def test_a_list_comes_from_standard_input_with_comments(self):
        lines = [line for line in self.listed().read_text().splitlines() if line.startswith('rmsnorm.')]
        text = f'# head\r\n{lines[0]}  # why\r\n\r\n{lines[0]}\n{lines[1]}'
        words = ['bundle', 'build', '--list', '-', '-o', self.folder / 'in.twb', '--json']
        self.assertEqual(self.ok(*words, env=self.env, input=text.encode()).json()['kernels'], 2)
        self.fails(1, *words, env=self.env, input=b'# nothing\n', saying='standard input lists no kernel')
        self.fails(1, *words, env=self.env, input=b'\nrmsnorm.x\n', saying='input:2:')
        with open('/dev/null', 'w') as unreadable:
            self.fails(1, *words, env=self.env, stdin=unreadable, saying='standard input cannot be read')

    def test_options_that_repeat_take_one_word_each(self):
        bundle = self.folder / 'one.twb'
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, env=self.env)
        spec = self.ok('bundle', 'show', bundle, '--json', env=self.env).json()['kernels'][0]['spec']
        there = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / 'there'))
        told = self.ok('cache', 'explain', '--bundle', bundle, spec, '--json', env=there).json()['artifact']
        self.assertTrue(any(layer['hit'] for layer in told['layers']))
        rows = self.ok('cache', 'ls', '--bundle', bundle, spec, '--json', env=there).json()['artifacts']
        self.assertEqual([row['spec'] for row in rows], [spec])

    def test_what_cannot_be_imported_is_told_for_what_it_is(self):
        bundle = self.folder / 'i.twb'
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, env=self.env)
        entry = pathlib.Path(self.ok('cache', 'ls', '--json', env=self.env).json()['artifacts'][0]['place']).read_bytes()
        there = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / 'there'))
        bad = self.folder / 'bad.twk'
        bad.write_bytes(entry[:70] + bytes([entry[70] ^ 1]) + entry[71:])
        self.fails(1, 'cache', 'import', bad, env=there, saying='bad.twk: header digest')
        bad.write_bytes(entry.replace(b'\r\n', b'\n', 1))
        self.fails(1, 'cache', 'import', bad, env=there, saying='bad.twk: magic number')
        bad.write_bytes(bundle.read_bytes()[:-1])
        self.fails(1, 'cache', 'import', bad, env=there, saying='bad.twk: bytes, but the header says')
        broken, whole = self.folder / 'broken.twb', bundle.read_bytes()
        for damaged in (whole[:-1], whole[:40], b'x' + whole[1:], b''):
            broken.write_bytes(damaged)
            self.fails(1, 'cache', 'import', broken, env=there, saying='broken.twb: a damaged bundle:')
        bad.write_text('neither')
        self.fails(1, 'cache', 'import', '--only', 'artifacts', bad, env=there, saying='neither a bundle nor an entry')
        value = self.ok('cache', 'import', '--only', 'artifacts', '-', '--json', env=there, input=entry).json()
        self.assertEqual((value['added'], value['known'], value['corrupt']), (1, 0, 0))
        self.fails(2, 'cache', 'export', '--only', 'artifacts', '-', env=there, saying='FILE.twb')
        self.fails(2, 'bundle', 'build', '--list', self.listed(), '-o', '-', env=there, saying='file')

    def test_an_import_demands_a_signature_on_request(self):
        key, public, bundle = (self.folder / name for name in ('ik.pem', 'ik.pub', 'is.twb'))
        subprocess.run(['openssl', 'genpkey', '-algorithm', 'ed25519', '-out', key], check=True)
        subprocess.run(['openssl', 'pkey', '-in', key, '-pubout', '-out', public], check=True)
        there = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / 'there'))
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, env=self.env)
        self.fails(1, 'cache', 'import', bundle, '--key', public, env=there, saying='not signed')
        entry = self.ok('cache', 'ls', '--json', env=self.env).json()['artifacts'][0]['place']
        self.fails(1, 'cache', 'import', entry, '--key', public, env=there, saying='no signature')
        self.fails(2, 'cache', 'import', self.listed(), '--key', public, env=there, saying='no signature')
        self.assertEqual(self.stat(there)['entries'], 0)
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, '--sign', key, env=self.env)
        self.assertEqual(self.ok('cache', 'import', bundle, '--key', public, '--json', env=there).json()['added'], 2)
        shown = self.ok('bundle', 'show', bundle, '--json', env=there).json()
        self.assertRegex(shown['signer'], '^ed25519:[0-9a-f]{64}$')

    def test_an_entry_of_a_newer_format_is_a_refusal_and_no_damage(self):
        bundle = self.folder / 'newer.twb'
        self.ok('bundle', 'build', '--list', self.listed(), '-o', bundle, env=self.env)
        data = bytearray(bundle.read_bytes())
        index_bytes, = struct.unpack_from('<Q', data, 24)  # docs/bundle.md
        entries, _, compat_bytes = struct.unpack_from('<III', data, 40)
        struct.pack_into('<I', data, 192 + compat_bytes + 32 * entries, 2)
        data[64:96] = file_formats.sha256(data[192:192 + index_bytes])
        data[96:128] = file_formats.sha256(b'tilewright bundle manifest 1\n' + data[:96])
        bundle.write_bytes(data)
        value = self.ok('bundle', 'verify', bundle, '--json', env=self.env).json()
        self.assertEqual((value['good'], value['serves'], value['troubles']), (1, 1, []))
        row, = value['refused']
        self.assertEqual((row['field'], row['have'], row['need']), ('format', '2', '1'))
        text = self.ok('bundle', 'verify', bundle, env=self.env).text
        self.assertIn(f'entry {row["request"]}: format: the entry has 2, but this process has 1', text)

    def test_explain_of_a_kernel_is_about_that_kernel(self):
        self.ok('bundle', 'build', '--list', self.listed(), '-o', self.folder / 'x.twb', env=self.env)
        spec = self.ok('cache', 'ls', '--json', env=self.env).json()['artifacts'][0]['spec']
        self.assertEqual(set(self.ok('cache', 'explain', spec, '--json', env=self.env).json()), {'artifact'})
        self.assertNotIn('artifact', self.ok('cache', 'explain', 'q4_1', '--json', env=self.env).json())
        blind = self.ok('cache', 'explain', spec, '--nvrtc', self.folder / 'no-nvrtc', '--json', env=self.env).json()['artifact']
        self.assertEqual((blind['action'], [row['field'] for row in blind['differences']]), ('', ['compiler']))
        again = self.ok('cache', 'explain', spec, '--cache-mode', 'refresh', '--json', env=self.env).json()['artifact']
        self.assertEqual([layer['reason'] for layer in again['layers']], ['absent', 'ignored'])
        self.fails(2, 'cache', 'explain', '--only', 'artifacts', env=self.env, saying='spec')

    def test_a_shared_folder_of_a_group_is_used_when_asked(self):
        shared = self.cache / 'team'
        shared.mkdir(parents=True)
        shared.chmod(0o770)
        words = ['bundle', 'build', '--list', self.listed(), '--shared', shared, '--json', '-o', self.folder / 'team.twb']
        unasked = self.ok(*words, env=self.env)
        self.assertIn('others can write it', unasked.err)
        self.assertEqual(list(shared.iterdir()), [])
        compiled = []
        for name in ('one', 'two'):
            env = self.environment(TILEWRIGHT_CACHE_DIR=str(self.cache / name))
            done = self.ok(*words, '--shared-by-group', env=env)
            self.assertEqual(done.err, '')
            compiled.append(done.json()['compiled'])
        self.assertEqual(compiled, [2, 0])
        self.fails(2, 'cache', 'ls', '--shared-by-group', env=self.env, saying='--shared')

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
