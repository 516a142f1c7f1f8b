"""Drives the tilewright binary for the tests beside this file."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

TILEWRIGHT = os.environ.get('TILEWRIGHT_CLI', 'tilewright')
MODEL = os.environ.get('TILEWRIGHT_MODEL', '')
#: Seconds that no process of these tests takes unless it hangs, however busy the machine.
PATIENCE = 240


class Result:

    def __init__(self, process, out, err):
        self.rc = process.returncode
        self.out = out
        self.err = err.decode(errors='replace')
        self.text = out.decode(errors='replace')

    def json(self):
        return json.loads(self.text)


class CliTest(unittest.TestCase):
    """A folder and a cache of its own for every class; a tiny model in it."""

    #: The command under test.
    program = TILEWRIGHT

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix='tilewright_cli_'))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.tiny = cls.folder / 'tiny.gguf'
        done = subprocess.run([TILEWRIGHT, 'synth', '--preset', 'tiny-test', '-o', cls.tiny],
                              env=cls.environment(), capture_output=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr

    @classmethod
    def leave_bundle_behind(cls):
        """From now on `program` is a copy, with its worker, without the bundle that `make bundle` may have put beside the command."""
        cls.program = cls.folder / 'bin' / 'tilewright'
        cls.program.parent.mkdir()
        for name in ('tilewright', 'tilewright-worker'):
            shutil.copy2(pathlib.Path(TILEWRIGHT).parent / name, cls.program.parent / name)

    @classmethod
    def environment(cls, **extra):
        env = dict(os.environ)
        for name in ('TILEWRIGHT_ISA', 'TILEWRIGHT_LOG', 'TILEWRIGHT_CACHE_DIR'):
            env.pop(name, None)
        env['XDG_CACHE_HOME'] = str(cls.folder / 'cache')
        env.update(extra)
        return env

    def start(self, *args, env=None, **options):
        options.setdefault('stdout', subprocess.PIPE)
        options.setdefault('stderr', subprocess.PIPE)
        process = subprocess.Popen([self.program, *map(str, args)], env=env or self.environment(), **options)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr, process.stdin):
            if pipe:
                pipe.close()

    def run_cli(self, *args, env=None, limits=None, input=None, timeout=PATIENCE, **options):
        """`limits`: {resource.RLIMIT_...: bytes}."""

        def limit():
            for which, value in (limits or {}).items():
                resource.setrlimit(which, (value, value))

        if input is not None:
            options['stdin'] = subprocess.PIPE
        process = self.start(*args, env=env, preexec_fn=limit if limits else None, **options)
        try:
            out, err = process.communicate(input=input, timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f'tilewright {" ".join(map(str, args))}: no end after {timeout} s')
        result = Result(process, out or b'', err or b'')
        self.assertGreaterEqual(result.rc, 0, f'tilewright {" ".join(map(str, args))}: died of signal {-result.rc}: {result.err}')
        return result

    def ok(self, *args, **options):
        result = self.run_cli(*args, **options)
        self.assertEqual(result.rc, 0, f'tilewright {" ".join(map(str, args))}: {result.err}')
        return result

    def fails(self, rc, *args, saying='', **options):
        """Exit code `rc`, and exactly one line on standard error, which holds every word of `saying`."""
        result = self.run_cli(*args, **options)
        where = f'tilewright {" ".join(map(str, args))}: rc {result.rc}: {result.err}'
        self.assertEqual(result.rc, rc, where)
        lines = result.err.strip().splitlines()
        self.assertEqual(len(lines), 1, where)
        self.assertTrue(lines[0].startswith('tilewright: '), where)
        for word in saying.split():
            self.assertIn(word, lines[0], where)
        return result

    def has_keys(self, value, *keys):
        for key in keys:
            self.assertIn(key, value)


class Gguf:
    """Where things lie in a GGUF version 3 file, so that tests can damage them."""

    SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def __init__(self, data):
        self.data = bytearray(data)
        self.at = 8
        self.tensors = {}  # name -> offset of its type, of its data
        tensors, entries = self.u64(), self.u64()
        for _ in range(entries):
            self.string()
            self.value(self.u32())
        found = []
        for _ in range(tensors):
            name = self.string()
            for _ in range(self.u32()):
                self.u64()
            type_at = self.at
            self.u32()
            found.append((name, type_at, self.u64()))
        base = (self.at + 31) // 32 * 32
        for name, type_at, offset in found:
            self.tensors[name] = (type_at, base + offset)

    def take(self, form):
        value = struct.unpack_from(form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def u32(self):
        return self.take('<I')

    def u64(self):
        return self.take('<Q')

    def string(self):
        size = self.u64()
        self.at += size
        return bytes(self.data[self.at - size:self.at]).decode()

    def value(self, kind):
        if kind == 8:
            self.string()
        elif kind == 9:
            element, count = self.u32(), self.u64()
            for _ in range(count):
                self.value(element)
        else:
            self.at += self.SIZES[kind]


def interrupt(process, which=signal.SIGINT):
    process.send_signal(which)
    return process.wait(timeout=PATIENCE)


def await_handler(process, which):
    """Until the process handles a signal: sent before, it would just end it."""
    status = pathlib.Path(f'/proc/{process.pid}/status')
    while not int(re.search(r'^SigCgt:\s*([0-9a-f]+)', status.read_text(), re.MULTILINE)[1], 16) >> (which - 1) & 1:
        assert process.poll() is None, 'it ended by itself'
        time.sleep(0.005)
