#include "ops/gemm/test_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/numeric.h"
#include "ops/gemm/reference.h"

namespace tilewright::test {
namespace {

struct MatrixSpec {
  DataType type;
  Order order;
  int rows, cols;
  int pad_blocks, misalign, copies;
  std::uint64_t seed;
};

void FillRun(DataType type, int count, Random& random, unsigned char* out) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random.Normal());
  if (!EncodeRow(type, values.data(), count, out)) {
    for (std::size_t i = 0; i < BytesOf(type, count); ++i)
      out[i] = static_cast<unsigned char>(random.Next() >> 56);
  }
}

TestMatrix MakeMatrix(const MatrixSpec& s) {
  const TypeInfo& info = GetTypeInfo(s.type);
  const bool row_major = s.order == Order::kRowMajor;
  const int run = row_major ? s.cols : s.rows;
  const int runs = row_major ? s.rows : s.cols;
  TestMatrix m;
  m.layout.type = s.type;
  m.layout.order = s.order;
  m.layout.rows = s.rows, m.layout.cols = s.cols;
  m.layout.ld = (run + info.block_elements - 1) / info.block_elements * info.block_elements +
                s.pad_blocks * info.block_elements;
  const std::size_t line = BytesOf(s.type, m.layout.ld);
  m.bytes = std::make_unique<GuardedBytes>(
      line * static_cast<std::size_t>(runs) * static_cast<std::size_t>(s.copies),
      static_cast<std::size_t>(s.misalign * info.block_bytes));
  Random random(s.seed);
  auto* out = static_cast<unsigned char*>(m.bytes->data());
  const int encoded = (run + info.block_elements - 1) / info.block_elements * info.block_elements;
  for (int i = 0; i < runs * s.copies; ++i)
    FillRun(s.type, encoded, random, out + static_cast<std::size_t>(i) * line);
  return m;
}

// Positive scales near 1, and whole zeros for u4 pairs. Row-major, `cols` elements of one value or
// a pair.
TestMatrix MakeScales(DataType type, int rows, int cols, bool pairs, int copies,
                      std::uint64_t seed) {
  TestMatrix m;
  m.layout.type = type;
  m.layout.rows = rows, m.layout.cols = cols;
  m.layout.ld = cols;
  const int width = cols * (pairs ? 2 : 1);
  const std::size_t line = BytesOf(type, width);
  m.bytes = std::make_unique<GuardedBytes>(line * static_cast<std::size_t>(rows) *
                                           static_cast<std::size_t>(copies));
  Random random(seed);
  std::vector<float> values(static_cast<std::size_t>(width));
  for (int r = 0; r < rows * copies; ++r) {
    for (int i = 0; i < width; ++i) {
      const bool zero = pairs && i % 2 == 1;
      values[static_cast<std::size_t>(i)] =
          static_cast<float>(zero ? random.Between(0, 15) : random.Uniform(0.01, 0.1));
    }
    static_cast<void>(EncodeRow(
        type, values.data(), width,
        static_cast<unsigned char*>(m.bytes->data()) + static_cast<std::size_t>(r) * line));
  }
  return m;
}

int Groups(int k, const Quant& quant) { return (k + quant.group - 1) / quant.group; }

std::vector<std::int32_t> Shuffled(int count, std::uint64_t seed) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  Random random(seed);
  for (int i = count - 1; i > 0; --i) {
    std::swap(rows[static_cast<std::size_t>(i)],
              rows[random.Below(static_cast<std::uint64_t>(i) + 1)]);
  }
  return rows;
}

MatrixLayout Flipped(const MatrixLayout& layout) {
  MatrixLayout t = layout;
  t.order = Flip(layout.order);
  std::swap(t.rows, t.cols);
  return t;
}

// The same memory as the transposed problem sees it.
GemmArgs TransposeArgs(const GemmArgs& args) {
  GemmArgs t = args;
  std::swap(t.a, t.b);
  std::swap(t.u, t.v);
  t.a_layout = Flipped(args.b_layout), t.b_layout = Flipped(args.a_layout);
  t.u_layout = Flipped(args.v_layout), t.v_layout = Flipped(args.u_layout);
  t.c_layout = Flipped(args.c_layout), t.d_layout = Flipped(args.d_layout);
  return t;
}

}  // namespace

TestProblem::TestProblem(const GemmDesc& desc, const CallOptions& options)
    : desc_(desc), options_(options) {
  const GemmDesc& d = desc_;
  const CallOptions& o = options_;
  const bool groups_m = d.num > 1 && d.group_axis == 0, groups_n = d.num > 1 && d.group_axis == 1;
  a_ = MakeMatrix(
      {d.type_a, d.order_a, d.m, d.k, o.pad_a, o.misalign, groups_n ? d.num : 1, o.seed * 7 + 1});
  b_ = MakeMatrix(
      {d.type_b, d.order_b, d.k, d.n, o.pad_b, o.misalign, groups_m ? d.num : 1, o.seed * 7 + 2});
  c_ =
      MakeMatrix({d.type_c, d.order_c, d.m, ResultCols(d), o.pad_c, o.misalign, 1, o.seed * 7 + 3});
  d_ = MakeMatrix({d.type_c, d.order_c, d.m, ResultCols(d), o.c_is_d ? o.pad_c : o.pad_c + 1,
                   o.misalign, 1, 1});
  if (o.beta == 0 && !o.c_is_d) c_.bytes->Poison();
  if (d.quant_a.type != QuantType::kNone) {
    u_ = MakeScales(d.type_u, d.m, Groups(d.k, d.quant_a), d.type_a == DataType::kU4, 1,
                    o.seed * 7 + 4);
  }
  if (d.quant_b.type != QuantType::kNone) {
    const int cols = d.quant_b.type == QuantType::kB ? Groups(d.n, d.quant_b) : d.n;
    v_ = MakeScales(d.type_v, Groups(d.k, d.quant_b), cols, d.type_b == DataType::kU4, d.num,
                    o.seed * 7 + 5);
  }
  a_.layout.num = b_.layout.num = c_.layout.num = d_.layout.num = d.num;
  if (groups_m && o.strided_b) {
    const std::size_t bytes = b_.bytes->size() / static_cast<std::size_t>(d.num);
    for (int g = 0; g < d.num; ++g) {
      pointers_.push_back(
          {static_cast<const unsigned char*>(b_.data()) + static_cast<std::size_t>(g) * bytes,
           b_.layout.ld});
    }
    std::reverse(pointers_.begin(), pointers_.end());
    b_.layout.ld = 0;
  }
  if (d.striding_a == Striding::kIndexed) {  // a gather: some rows twice, some never
    Random random(o.seed + 11);
    for (int r = 0; r < d.m; ++r)
      rows_a_.push_back(static_cast<std::int32_t>(random.Below(static_cast<std::uint64_t>(d.m))));
  }
  if (d.striding_c == Striding::kIndexed) rows_c_ = Shuffled(d.m, o.seed + 12);
  c_before_.resize(c_.bytes->size());
  std::memcpy(c_before_.data(), c_.data(), c_before_.size());
}

GemmArgs TestProblem::args() const {
  GemmArgs args;
  args.alpha = options_.alpha, args.beta = options_.beta;
  args.a = a_.data(), args.b = b_.data();
  if (!pointers_.empty()) args.b = pointers_.data();
  args.a_layout = a_.layout, args.b_layout = b_.layout;
  if (u_.bytes) args.u = u_.data(), args.u_layout = u_.layout;
  if (v_.bytes) args.v = v_.data(), args.v_layout = v_.layout;
  args.c = c_.data(), args.c_layout = c_.layout;
  args.d = options_.c_is_d ? c_.bytes->data() : d_.bytes->data();
  args.d_layout = options_.c_is_d ? c_.layout : d_.layout;
  if (desc_.num > 1) {
    for (MatrixLayout* layout : {desc_.group_axis == 0 ? &args.a_layout : &args.b_layout,
                                 &args.c_layout, &args.d_layout}) {
      layout->offsets = options_.offsets.data();
    }
  }
  if (!rows_a_.empty()) args.a_layout.idxs = rows_a_.data();
  if (!rows_c_.empty()) args.c_layout.idxs = args.d_layout.idxs = rows_c_.data();
  return args;
}

void TestProblem::ResetD() {
  std::memcpy(c_.bytes->data(), c_before_.data(), c_before_.size());
  d_.bytes->Poison();
  if (!options_.c_is_d) return;
  if (options_.beta == 0) c_.bytes->Poison();
}

std::string TestProblem::CheckPadding() const {
  const TestMatrix& d = options_.c_is_d ? c_ : d_;
  for (const auto& [name, matrix] : {std::pair{"A", &a_}, {"B", &b_}, {"C", &c_}, {"D", &d_}}) {
    if (const std::string damage = matrix->bytes->Damage(); !damage.empty())
      return fmt::format("{}: {}", name, damage);
  }
  const bool row_major = d.layout.order == Order::kRowMajor;
  const int run = row_major ? d.layout.cols : d.layout.rows;
  const int runs = row_major ? d.layout.rows : d.layout.cols;
  const auto* bytes = static_cast<const unsigned char*>(d.data());
  for (int i = 0; i < runs; ++i) {
    const std::size_t end = BytesOf(d.layout.type, (i + 1) * d.layout.ld);
    for (std::size_t at = BytesOf(d.layout.type, i * d.layout.ld + run); at < end; ++at) {
      if (bytes[at] != 0xff) return fmt::format("padding of D was written after line {}", i);
    }
  }
  return {};
}

std::string TestProblem::Run(Kernel& kernel, const LaunchSpec& spec, Executor& executor,
                             bool transposed) {
  ResetD();
  GemmArgs call = args();
  std::unique_ptr<GuardedBytes> packed;
  if (kernel.desc().pack_b != kPackPlain) {
    packed = std::make_unique<GuardedBytes>(kernel.PackedBytes(call.b_layout));
    if (Status ok = kernel.PackB(call.b, call.b_layout, packed->data(), Stream{&executor}); !ok) {
      return "PackB: " + ok.error().message;
    }
    if (const std::string damage = packed->Damage(); !damage.empty()) return "packed B: " + damage;
    call.b = packed->data();
    call.b_layout.pack = kernel.desc().pack_b;
  }
  GemmDesc problem = desc_;
  problem.pack_b = call.b_layout.pack;
  std::unique_ptr<Kernel> wrapper;
  LaunchSpec launch = spec;
  launch.kernel = &kernel;
  if (transposed) {
    wrapper = Transpose(kernel);
    launch.kernel = wrapper.get();
    problem = Transpose(problem);
    call = TransposeArgs(call);
  }
  if (auto no = launch.kernel->IsFeasible(problem); no) return "IsFeasible: " + no->ToString();
  DeviceSpec device;
  device.cores = executor.workers();
  GuardedBytes partials(launch.kernel->PartialsBytes(problem, launch, device));
  Workspace workspace;
  workspace.partials = partials.data();
  workspace.partials_size = partials.size();
  if (Status ok = launch.kernel->Launch(call, launch, workspace, Stream{&executor}); !ok)
    return "Launch: " + ok.error().message;
  if (const std::string damage = partials.Damage(); !damage.empty()) return "workspace: " + damage;
  return CheckPadding();
}

std::string TestProblem::RunAndCheck(Kernel& kernel, const LaunchSpec& spec, Executor& executor) {
  if (std::string wrong = Run(kernel, spec, executor); !wrong.empty()) return wrong;
  GemmArgs check = args();
  check.c = c_before_.data();
  GemmCheck how;
  how.activations = kernel.desc().activations;
  const Result<GemmError> error = CheckGemm(check, desc_, how);
  if (!error) return "CheckGemm: " + error.error().message;
  if (error->worst <= 1) return {};
  return fmt::format("D[{}, {}] = {:.9g}, want {:.9g}: error is {:.3g} times the allowed",
                     error->row, error->col, error->got, error->want, error->worst);
}

std::vector<unsigned char> TestProblem::ResultBytes() const {
  const TestMatrix& d = options_.c_is_d ? c_ : d_;
  const bool row_major = d.layout.order == Order::kRowMajor;
  const int run = row_major ? d.layout.cols : d.layout.rows;
  const int runs = row_major ? d.layout.rows : d.layout.cols;
  const auto* bytes = static_cast<const unsigned char*>(d.data());
  std::vector<unsigned char> out;
  for (int i = 0; i < runs; ++i) {
    const unsigned char* line = bytes + BytesOf(d.layout.type, i * d.layout.ld);
    out.insert(out.end(), line, line + BytesOf(d.layout.type, run));
  }
  return out;
}

std::string TestProblem::Repro() const {
  std::string offsets;
  for (const std::int32_t offset : options_.offsets) offsets += fmt::format(" {}", offset);
  return fmt::format(
      "{} | alpha={} beta={} c_is_d={} pads={},{},{} misalign={} seed={} offsets=[{} ] "
      "strided_b={}",
      KeyOf(desc_), options_.alpha, options_.beta, options_.c_is_d, options_.pad_a, options_.pad_b,
      options_.pad_c, options_.misalign, options_.seed, offsets, options_.strided_b);
}

}  // namespace tilewright::test
