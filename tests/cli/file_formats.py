"""Readers of the files that keep compiled kernels, written from docs/artifact_key.md, artifact_entry.md, bundle.md and
artifact_store.md alone: every byte of a file is accounted for. What does not hold raises AssertionError with the place."""

import hashlib
import struct

REQUEST_FIELDS = {
    0x0001: 'schema', 0x0002: 'record', 0x0003: 'kind', 0x0100: 'family', 0x0101: 'arch', 0x0102: 'type_a', 0x0103: 'type_b',
    0x0104: 'type_c', 0x0105: 'type_d', 0x0106: 'order_a', 0x0107: 'order_b', 0x0108: 'epilogue', 0x0109: 'stages',
    0x010a: 'tile_m', 0x010b: 'tile_n', 0x010c: 'tile_k', 0x010d: 'warps', 0x010e: 'split_k', 0x010f: 'cluster_m',
    0x0110: 'cluster_n', 0x0111: 'param0', 0x0112: 'param1', 0x0113: 'param2', 0x0114: 'param3', 0x0200: 'revision',
    0x0201: 'render_revision', 0x0202: 'launch_abi', 0x0203: 'threads', 0x0204: 'dynamic_smem_bytes',
    0x0205: 'max_registers', 0x0206: 'max_spill_bytes', 0x0207: 'max_stack_bytes', 0x0300: 'source',
    0x0301: 'source_digest', 0x0302: 'header_count',
}
REQUEST_TYPES = {
    **{name: 4 for name in ('record', 'kind', 'family', 'arch', 'type_a', 'type_b', 'type_c', 'type_d', 'order_a', 'order_b',
                            'epilogue', 'source')},
    **{f'param{i}': 2 for i in range(4)}, 'source_digest': 5,
}
ACTION_FIELDS = {
    0x0001: 'schema', 0x0002: 'record', 0x0500: 'request', 0x0501: 'backend', 0x0502: 'version', 0x0503: 'build_id',
    0x0504: 'builtins_version', 0x0505: 'builtins_build_id',
}
METADATA = ['request_record', 'action_record', 'symbol', 'threads', 'dynamic_smem', 'launch_abi', 'registers', 'static_smem',
            'constant', 'stack', 'spill_stores', 'spill_loads', 'barriers', 'min_driver', 'compile_ms']
RESOURCES = ['registers', 'static_smem', 'constant', 'stack', 'spill_stores', 'spill_loads', 'barriers']


def sha256(data):
    return hashlib.sha256(data).digest()


def align(value, unit):
    return -(-value // unit) * unit


def check(condition, what):
    if not condition:
        raise AssertionError(what)


class Reader:
    """Takes values off bytes; what is left over at the end is an error."""

    def __init__(self, data, name):
        self.data, self.at, self.name = data, 0, name

    def take(self, size):
        check(self.at + size <= len(self.data), f'{self.name}: {size} bytes at {self.at} of {len(self.data)}')
        self.at += size
        return self.data[self.at - size:self.at]

    def number(self, form):
        return struct.unpack('<' + form, self.take(struct.calcsize('<' + form)))[0]

    def zeros(self, size):
        check(self.take(size) == bytes(size), f'{self.name}: bytes before {self.at} are not zero')

    def text(self):
        return self.take(self.number('I')).decode()

    def end(self):
        check(self.at == len(self.data), f'{self.name}: {len(self.data) - self.at} bytes too many')


def tagged_fields(data, name, text='utf-8'):
    """u16 tag, u8 type, u32 length, value."""
    reader, fields = Reader(data, name), []
    while reader.at < len(data):
        tag, kind, size = reader.number('H'), reader.number('B'), reader.number('I')
        raw = reader.take(size)
        check(size == {1: 4, 2: 4, 3: 8, 4: size, 5: 32}[kind], f'{name}: tag {tag:#x} of type {kind} has {size} bytes')
        value = {1: lambda: struct.unpack('<I', raw)[0], 2: lambda: struct.unpack('<i', raw)[0],
                 3: lambda: struct.unpack('<Q', raw)[0], 4: lambda: raw.decode(text), 5: lambda: raw.hex()}[kind]()
        fields.append((tag, kind, value))
    return fields


def request_record(data):
    fields = tagged_fields(data, 'request record')
    fixed = fields[:len(REQUEST_FIELDS)]
    check([tag for tag, _, _ in fixed] == list(REQUEST_FIELDS), f'request record: tags {[hex(f[0]) for f in fixed]}')
    record = {}
    for tag, kind, value in fixed:
        name = REQUEST_FIELDS[tag]
        check(kind == REQUEST_TYPES.get(name, 1), f'request record: {name} has type {kind}')
        record[name] = value
    check((record['schema'], record['record'], record['kind']) == (2, 'request', 'cubin'), f'request record: {record}')
    rest = fields[len(fixed):]

    def pairs(count, first, kind):
        found = []
        for _ in range(count):
            (tag_a, kind_a, name), (tag_b, kind_b, value) = rest.pop(0), rest.pop(0)
            check((tag_a, kind_a, tag_b, kind_b) == (first, 4, first + 1, kind), f'request record: pair {tag_a:#x} {tag_b:#x}')
            found.append((name, value))
        names = [name.encode() for name, _ in found]
        check(names == sorted(set(names)), f'request record: {names} are not sorted')
        return dict(found)

    record['headers'] = pairs(record['header_count'], 0x0303, 5)
    tag, kind, count = rest.pop(0)
    check((tag, kind) == (0x0400, 1), f'request record: tag {tag:#x} where the options are counted')
    record['options'] = pairs(count, 0x0401, 4)
    check(not rest, f'request record: {len(rest)} fields too many')
    return record


def action_record(data):
    fields = tagged_fields(data, 'action record')
    check([tag for tag, _, _ in fields] == list(ACTION_FIELDS), f'action record: tags {[hex(f[0]) for f in fields]}')
    check([kind for _, kind, _ in fields] == [1, 4, 5, 4, 4, 4, 4, 4], 'action record: types')
    record = {ACTION_FIELDS[tag]: value for tag, _, value in fields}
    check((record['schema'], record['record']) == (2, 'action'), f'action record: {record}')
    return record


def spec_name(record):
    """The kernel's name in lists and on the command line (docs/kernel_ids.md)."""
    types = '-'.join(record[f'type_{x}'] for x in 'abcd')
    orders = ''.join({'row_major': 't', 'col_major': 'n'}[record[f'order_{x}']] for x in 'ab')
    tile = 'x'.join(str(record[f'tile_{x}']) for x in 'mnk')
    params = '_'.join(str(record[f'param{i}']) for i in range(4))
    return (f'{record["family"]}.{types}.{orders}.{record["arch"]}.{tile}.w{record["warps"]}.s{record["stages"]}'
            f'.k{record["split_k"]}.c{record["cluster_m"]}x{record["cluster_n"]}.{record["epilogue"]}.p{params}')


def kernel(request_bytes, action_bytes):
    """What both records say together, and that they belong together."""
    request, action = request_record(request_bytes), action_record(action_bytes)
    key = sha256(request_bytes).hex()
    check(action['request'] == key, 'the action record is of another request')
    return {'request': request, 'action': action, 'request_key': key, 'action_key': sha256(action_bytes).hex(),
            'spec': spec_name(request), 'symbol': f'tw_{request["family"]}_{key[:16]}'}


def entry(data):
    """An entry file."""
    check(data[:8] == b'\x89TWA\r\n\x1a\n', 'entry: magic number')
    major, minor, head, size, flags, sections = struct.unpack_from('<HHIQII', data, 8)
    check((major, minor, flags, sections) == (1, 0, 0, 4), f'entry: version {major}.{minor}, flags {flags}, {sections} sections')
    check(size == len(data) and size % 64 == 0 and size <= 256 << 20, f'entry: size {size} of {len(data)}')
    check(head % 64 == 0 and head <= 1 << 20, f'entry: head of {head}')
    check(sha256(data[:head - 32]) == data[head - 32:head], 'entry: head digest')
    request, action = data[32:64].hex(), data[64:96].hex()
    metadata_bytes, zero = struct.unpack_from('<II', data, 96)
    check(zero == 0, 'entry: offset 100')
    table = Reader(data[104:104 + 56 * sections], 'section table')
    end, parts = head, {}
    for want in (1, 2, 3, 4):
        tag, zero, offset, length, digest = (table.number('I'), table.number('I'), table.number('Q'), table.number('Q'),
                                             table.take(32))
        check((tag, zero, offset) == (want, 0, align(end, 64)), f'entry: section {tag} at {offset}')
        check(not any(data[end:offset]), f'entry: padding before {offset}')
        parts[tag], end = data[offset:offset + length], offset + length
        check(sha256(parts[tag]) == digest, f'entry: digest of section {tag}')
    check(align(end, 64) == size and not any(data[end:]), 'entry: end')
    at = 104 + 56 * sections
    check(head == align(at + metadata_bytes + 32, 64), f'entry: head of {head} for {metadata_bytes} bytes of metadata')
    check(not any(data[at + metadata_bytes:head - 32]), 'entry: padding of the head')
    fields = tagged_fields(data[at:at + metadata_bytes], 'metadata', text='latin-1')  # records are bytes
    check([tag for tag, _, _ in fields] == list(range(1, 16)), 'metadata: tags')
    check([kind for _, kind, _ in fields] == [4, 4, 4] + [1] * 11 + [3], 'metadata: types')
    found = {name: value for name, (_, _, value) in zip(METADATA, fields)}
    found['compile_ms'] = struct.unpack('<d', struct.pack('<Q', found['compile_ms']))[0]
    said = kernel(found.pop('request_record').encode('latin-1'), found.pop('action_record').encode('latin-1'))
    check((said['request_key'], said['action_key']) == (request, action), 'entry: keys')
    check((said['symbol'], said['request']['launch_abi']) == (found['symbol'], found['launch_abi']), 'entry: symbol, ABI')
    found.update(said, cubin=parts[1], ptx=parts[2], source=parts[3], log=parts[4])
    return found


def bundle(data):
    """A bundle file."""
    head = Reader(data[:192], 'bundle header')
    check(head.take(8) == b'TWBUNDLE', 'bundle: magic number')
    check((head.number('I'), head.number('I')) == (1, 0), 'bundle: version')
    content_bytes, index_bytes, payload_offset = head.number('Q'), head.number('Q'), head.number('Q')
    entry_count, blob_count, compat_bytes = head.number('I'), head.number('I'), head.number('I')
    head.zeros(12)
    check(head.take(32) == sha256(data[192:192 + index_bytes]), 'bundle: index digest')
    manifest = head.take(32)
    check(manifest == sha256(b'tilewright bundle manifest 1\n' + data[:96]), 'bundle: manifest digest')
    signature_bytes = head.number('I')
    head.zeros(60)
    check(signature_bytes in (0, 104) and content_bytes + signature_bytes == len(data), 'bundle: size')
    check(payload_offset == align(192 + index_bytes, 64), 'bundle: payload offset')
    check(index_bytes == compat_bytes + (32 + 40) * entry_count + 48 * blob_count, 'bundle: index bytes')
    check(not any(data[192 + index_bytes:payload_offset]), 'bundle: padding of the index')

    index = Reader(data[192:192 + index_bytes], 'bundle index')
    compat = {'archs': [(index.number('H'), index.number('H')) for _ in range(index.number('I'))]}
    compat['abis'] = [index.number('I') for _ in range(index.number('I'))]
    compat['drivers'] = (index.number('I'), index.number('I'))
    compat['compilers'] = [tuple(index.text() for _ in range(5)) for _ in range(index.number('I'))]
    padding = compat_bytes - index.at
    check(0 <= padding < 8 and compat_bytes % 8 == 0, f'bundle: compat block of {compat_bytes}')
    index.zeros(padding)
    keys = [index.take(32) for _ in range(entry_count)]
    check(keys == sorted(set(keys)), 'bundle: keys are not ascending')
    records = [struct.unpack('<IHHIIIIIIII', index.take(40)) for _ in range(entry_count)]
    blobs = [(index.number('Q'), index.number('Q'), index.take(32)) for _ in range(blob_count)]
    index.end()

    end, contents = payload_offset, []
    for number, (offset, size, digest) in enumerate(blobs):
        check(offset == align(end, 64) and size >= 1, f'bundle: blob {number} of {size} at {offset}')
        check(not any(data[end:offset]), f'bundle: padding before blob {number}')
        contents.append(data[offset:offset + size])
        check(sha256(contents[-1]) == digest, f'bundle: digest of blob {number}')
        end = offset + size
    check(end == content_bytes or (not blobs and content_bytes == payload_offset), 'bundle: the last blob ends the content')
    check(len({digest for _, _, digest in blobs}) == len(blobs), 'bundle: a payload twice')

    entries, named = [], []
    for key, (form, arch, suffix, abi, driver, compiler, *parts, zero) in zip(keys, records):
        check((form, zero) == (1, 0), f'bundle: record of format {form}')
        for part in parts:
            if part != 0xffffffff and part not in named:
                named.append(part)
        description, cubin, ptx, source = (None if part == 0xffffffff else contents[part] for part in parts)
        entries.append(description_of(description, key, arch, suffix, abi, driver, compat['compilers'][compiler]))
        entries[-1].update(cubin=cubin, ptx=ptx, source=source)
    check(named == list(range(blob_count)), f'bundle: blobs are named in the order {named}')
    check(compat['archs'] == sorted({record[1:3] for record in records}), 'bundle: architectures of the compat block')
    check(compat['abis'] == sorted({record[3] for record in records}), 'bundle: launch ABIs of the compat block')
    drivers = [record[4] for record in records] or [0]
    check(compat['drivers'] == (min(drivers), max(drivers)), 'bundle: drivers of the compat block')
    check(compat['compilers'] == sorted({compat['compilers'][record[5]] for record in records}), 'bundle: compilers')

    found = {'digest': manifest.hex(), 'entries': entries, 'compat': compat, 'signer': None}
    if signature_bytes:
        tail = Reader(data[content_bytes:], 'bundle signature')
        check(tail.take(8) == b'ed25519\0', 'bundle: algorithm')
        found.update(signer=tail.take(32), signature=tail.take(64), signed=b'tilewright bundle signature 1\n' + manifest)
    return found


def description_of(data, key, arch, suffix, abi, driver, compiler):
    """The description of a bundle's entry, and what the index says of it."""
    reader = Reader(data, 'description')
    found = {name: reader.number('I') for name in ('threads', 'dynamic_smem', 'launch_abi', 'min_driver')}
    found.update((name, reader.number('I')) for name in RESOURCES)
    found.update(kernel(reader.take(reader.number('I')), reader.take(reader.number('I'))))
    reader.end()
    request, action = found['request'], found['action']
    check(found['request_key'] == key.hex(), 'description: the key')
    check(request['arch'] == f'sm_{arch}{chr(suffix) if suffix else ""}', 'description: the architecture')
    check((found['launch_abi'], request['launch_abi'], found['min_driver']) == (abi, abi, driver), 'description: ABI, driver')
    check(tuple(action[name] for name in ('backend', 'version', 'build_id', 'builtins_version', 'builtins_build_id')) == compiler,
          'description: the compiler')
    return found


def counters(data):
    """The file `counters` of a store."""
    check(len(data) == 4096, f'counters: {len(data)} bytes')
    reader = Reader(data, 'counters')
    check(reader.take(8) == b'TWCOUNT1', 'counters: magic number')
    check((reader.number('I'), reader.number('I')) == (128, 496), 'counters: header')
    found = {'made': reader.number('Q')}
    reader.zeros(8)
    found['known'] = reader.number('Q')
    entries, size = reader.number('Q'), reader.number('Q')
    found.update(entries=entries & (1 << 28) - 1, bytes=size & (1 << 46) - 1, trimmed=reader.number('Q'), swept=reader.number('Q'))
    reader.zeros(56)
    words = [reader.number('Q') for _ in range(496)]
    reader.end()
    layers, reasons = 5, 5  # artifact_store.h: hits by layer, misses by layer (with "compiled") and reason, then the others
    found['hits'], words = words[:layers], words[layers:]
    found['misses'] = [words[i * reasons:(i + 1) * reasons] for i in range(layers + 1)]
    words = words[(layers + 1) * reasons:]
    names = ['requests_missed', 'compiles', 'compile_failures', 'compile_us', 'saved_us', 'lock_waits', 'lock_wait_us',
             'lock_timeouts', 'publishes', 'publishes_lost', 'evictions', 'quarantined', 'verify_mismatches']
    found.update(zip(names, words))
    check(not any(words[len(names):]), 'counters: words that are not used yet')
    return found
