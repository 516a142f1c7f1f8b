#include "key_inputs.h"

#include "core/random.h"

namespace tilewright::test {
namespace {

constexpr const char* kUnit = R"(#include "spec.cuh"
#include "keys/inner.cuh"
extern "C" __global__ void TILEWRIGHT_KERNEL(const tw::Params params) {
  params.out[0] = tw::Deep(tw::spec::kTileM);
}
)";
constexpr const char* kInner = R"(#pragma once
#include "keys/deep.cuh"
namespace tw {
struct Params {
  int* out;
};
}  // namespace tw
)";
constexpr const char* kDeep = R"(#pragma once
namespace tw {
__device__ inline int Deep(int x) { return x + 1; }
}  // namespace tw
)";
constexpr const char* kTypes = R"(#pragma once
namespace tw {
enum class Type : unsigned char { kNone, kF32, kF16, kBF16 };
enum class Epilogue : unsigned char { kNone, kAdd, kScale };
}  // namespace tw
)";

}  // namespace

KeyInputs FixedInputs() {
  KeyInputs inputs;
  inputs.spec = FixedSpecs().front();
  inputs.files = {{"keys/unit.cu", kUnit},
                  {"keys/inner.cuh", kInner},
                  {"keys/deep.cuh", kDeep},
                  {"device/cuda/kernels/types.cuh", kTypes}};
  inputs.options = {{"--fmad", "false"}};
  inputs.compiler = {.backend = "nvrtc",
                     .version = "13.0",
                     .build_id = "65be0db3a1c24f7e8890aabbccddeeff00112233",
                     .builtins_version = "13.0",
                     .builtins_build_id = "08d17e3244556677889900aabbccddeeff001122"};
  return inputs;
}

std::vector<KernelSpec> FixedSpecs() {
  const KernelSpec plain{.family = "keys",
                         .arch = {80, 0},
                         .type_a = DataType::kBF16,
                         .type_b = DataType::kBF16,
                         .type_d = DataType::kBF16,
                         .order_a = Order::kRowMajor,
                         .stages = 4,
                         .tile_m = 128,
                         .tile_n = 128,
                         .tile_k = 32,
                         .warps = 4};
  std::vector<KernelSpec> specs(10, plain);
  specs[1].order_b = Order::kRowMajor;
  specs[2].order_a = Order::kColMajor;
  specs[3].arch = {90, 'a'};
  specs[3].cluster_m = 2;
  specs[3].cluster_n = 1;
  specs[4].arch = {90, 0};
  specs[5].arch = {100, 'f'};
  specs[5].epilogue = SpecEpilogue::kAdd;
  specs[5].type_c = DataType::kF32;
  specs[6].type_b = DataType::kQ8_0;
  specs[6].type_a = DataType::kF32;
  specs[6].split_k = 8;
  specs[7].params = {-1, 2147483647, -2147483647 - 1, 7};
  specs[7].epilogue = SpecEpilogue::kScale;
  specs[8] = KernelSpec{.family = "keys", .arch = {120, 0}};
  specs[9].tile_m = 65535;
  specs[9].stages = 255;
  specs[9].warps = 65535;
  return specs;
}

InputFamily::InputFamily(const KeyInputs& inputs) : inputs_(inputs) {
  for (const auto& [name, text] : inputs_.files) files_.push_back({name, text});
  for (const auto& [flag, value] : inputs_.options) options_.push_back({flag, value});
  family_.name = inputs_.spec.family;
  family_.revision = inputs_.revision;
  family_.launch_abi = inputs_.launch_abi;
  family_.source = inputs_.source;
  family_.files = files_;
  family_.options = options_;
  family_.check = [](const KernelSpec& spec) -> std::optional<Rejection> {
    if (spec.tile_m != 13) return std::nullopt;
    return Rejection{Reason::kShape, "tile_m = 13", "another"};
  };
  family_.launch = inputs_.launch;
  family_.limits = inputs_.limits;
  family_.catalog = [](CudaArch) { return FixedSpecs(); };
}

Result<PreparedInputs> Prepare(const KeyInputs& inputs) {
  auto family = std::make_unique<const InputFamily>(inputs);
  KernelFamilies families;
  if (const Status added = families.Add(family->get()); !added) return Fail(added.error());
  const Result<KernelSources> sources = KernelSources::Make(families);
  if (!sources) return Fail(sources.error());
  Result<CompileInput> input = PrepareCompile(inputs.spec, family->get(), *sources);
  if (!input) return Fail(input.error());
  return PreparedInputs{std::move(family), *std::move(input)};
}

Result<KeyRecord> RequestOf(const KeyInputs& inputs) {
  Result<PreparedInputs> prepared = Prepare(inputs);
  if (!prepared) return Fail(prepared.error());
  return std::move(prepared->input.request);
}

Result<KeyRecord> ActionOf(const KeyInputs& inputs) {
  const Result<KeyRecord> request = RequestOf(inputs);
  if (!request) return Fail(request.error());
  return MakeActionRecord(request->key, inputs.compiler);
}

std::string NoiseText(std::size_t bytes, std::uint64_t seed) {
  std::string text(bytes, '\0');
  Random random(seed);
  for (char& c : text) c = static_cast<char>(random.Next() >> 56);
  return text;
}

CompileOutput FakeOutput(std::size_t cubin_bytes, std::size_t ptx_bytes) {
  return {.cubin = NoiseText(cubin_bytes, 1),
          .ptx = NoiseText(ptx_bytes, 2),
          .log = "ptxas info    : Used 40 registers, used 1 barriers\n",
          .resources = {.registers = 40,
                        .static_smem_bytes = 1024,
                        .constant_bytes = 408,
                        .stack_bytes = 8,
                        .spill_store_bytes = 4,
                        .spill_load_bytes = 12,
                        .barriers = 1},
          .compile_ms = 43.25};
}

Result<std::string> EntryOf(const KeyInputs& inputs, const CompileOutput& output) {
  const Result<PreparedInputs> prepared = Prepare(inputs);
  if (!prepared) return Fail(prepared.error());
  return MakeEntry(prepared->input, inputs.compiler, output);
}

}  // namespace tilewright::test
