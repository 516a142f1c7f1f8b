"""explain for a GPU that is not here: every operation has the candidates that an H200 would have."""

import pathlib
import unittest

from harness import CliTest

H200 = pathlib.Path(__file__).resolve().parents[2] / 'docs' / 'devices' / 'nvidia_h200.json'


def family_of(kernel):
    """The first segment of the name; of a vendor's kernel or a sequence with what it is."""
    segments = kernel.split('.')
    return f'gemm.{segments[3]}' if segments[0] == 'gemm' else segments[0]


class ExplainElsewhere(CliTest):

    def candidates(self, *words, families, chosen):
        """Checks the candidates of one problem: `families` have feasible ones, a kernel of `chosen` is first."""
        said = self.ok('explain', *words, '--device', 'cpu', '--device-spec', H200, '--json').json()
        self.assertTrue(said['device'].startswith('cuda/NVIDIA H200/sm_90/132 sms/'), said['device'])
        feasible = [row for row in said['candidates'] if row['feasible']]
        self.assertLessEqual(set(families), {family_of(row['kernel']) for row in feasible}, words)
        for row in feasible:
            self.assertGreater(row['predicted_us'], 0, row)
        for row in said['candidates']:
            self.assertNotIn('.sm_80.', row['kernel'])
            if not row['feasible']:
                self.assertTrue(row['reason'], row)
        self.assertEqual(said['provenance'], 'model')
        self.assertEqual(said['chosen'], feasible[0]['kernel'])
        self.assertIn(family_of(said['chosen']), chosen, words)
        # The table names the same kernel.
        self.assertIn(said['chosen'], self.ok('explain', *words, '--device-spec', H200).text)
        return {row['kernel']: row for row in said['candidates']}

    def test_gemm(self):
        shape = ('gemm', '--n', 4096, '--k', 4096, '--type-a', 'bf16', '--type-c', 'bf16')
        self.candidates(*shape, '--m', 1, '--type-b', 'q4_k', families=('gemv_int8', 'gemv_q', 'gemm_q', 'gemm.sequence'),
                        chosen=('gemv_int8',))
        many = ('gemm_hopper', 'gemm_mma', 'gemm.cublaslt')
        self.candidates(*shape, '--m', 2048, '--type-b', 'bf16', families=many, chosen=many)
        self.candidates(*shape, '--m', 2048, '--type-b', 'q8_0', families=('gemm_q', 'gemm.sequence'), chosen=('gemm.sequence',))

    def test_attention(self):
        shape = 'context=2048 heads=32 kv_heads=8 head_dim=128 type_q=bf16 type_kv=bf16 page_size=256'
        prompt = ('attention_hopper', 'attention_mma', 'attention_split')
        self.candidates('attention', f'rows=2048 {shape}', families=prompt, chosen=('attention_hopper',))
        decode = ('attention_decode', 'attention_split')
        self.candidates('attention', f'rows=1 {shape}', families=decode, chosen=decode)

    def test_norm(self):
        rows = self.candidates('norm', 'rows=1 cols=4096 type_in=bf16 type_out=bf16', families=('rmsnorm',), chosen=('rmsnorm',))
        self.assertIn('type', next(row['reason'] for row in rows.values() if '.f32-' in row['kernel'] and not row['feasible']))

    def test_rope(self):
        self.candidates('rope', 'rows=8 heads=32 head_dim=128 dims=128 type_in=bf16 type_out=bf16', families=('rope',),
                        chosen=('rope',))

    def test_kv_scatter(self):
        self.candidates('kv_scatter', 'rows=8 kv_heads=8 head_dim=128 type_x=bf16 type_cache=bf16 page_size=64',
                        families=('kv_scatter',), chosen=('kv_scatter',))

    def test_elementwise(self):
        for function in ('add', 'mul', 'silu', 'swiglu'):
            operand = '' if function == 'silu' else 'type_b=bf16'
            types = f'type_a=bf16 {operand or "type_b=none"} type_out=bf16'
            self.candidates('elementwise', f'function={function} rows=8 cols=4096 {types}', families=('elementwise',),
                            chosen=('elementwise',))

    def test_copy(self):
        for source, target in (('bf16', 'f32'), ('q4_k', 'bf16'), ('f32', 'f16')):
            self.candidates('copy', f'rows=8 cols=4096 type_src={source} type_dst={target}', families=('copy',), chosen=('copy',))

    def test_embedding(self):
        for table in ('q8_0', 'bf16'):
            self.candidates('embedding', f'rows=8 hidden=4096 type_table={table} type_out=bf16', families=('embedding',),
                            chosen=('embedding',))

    def test_top_k(self):
        for k in (1, 40):
            self.candidates('top_k', f'rows=4 cols=128256 k={k}', families=('top_k',), chosen=('top_k',))

    def test_route(self):
        self.candidates('route', 'rows=8 experts=128 used=8 type_logits=bf16 type_weights=bf16', families=('route',),
                        chosen=('route',))

    def test_combine(self):
        self.candidates('combine', 'rows=8 cols=2048 used=8 type_x=bf16 type_weights=bf16 type_out=bf16', families=('combine',),
                        chosen=('combine',))

    def test_every_operation_is_tried_here(self):
        verbs = self.ok('explain', '--help').text.split('Subcommands:')[1].split('\n\n')[0].split('\n')
        operations = {line.split()[0] for line in verbs if line.startswith('  ') and not line.startswith('   ')}
        self.assertEqual({name for name in operations if not hasattr(self, f'test_{name}')}, set())
        self.assertIn('gemm', operations)


if __name__ == '__main__':
    unittest.main()
