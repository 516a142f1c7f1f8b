// Which compiled kernels the sessions of a model may launch.

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "api/kernel_survey.h"
#include "core/text.h"
#include "device/cuda/boards.h"
#include "device/unbacked_device.h"
#include "model/load/load.h"
#include "ops/gemm/cuda/gemm_chain/families.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

/// Sessions that people have: `slots` sequences at once with a context of at most `context`
/// positions (0: the model's), passes of 1, 2, 4 ... rows.
struct Use {
  std::int32_t slots, context;
  std::int32_t prompt_rows;  ///< at most, of passes of which one row wants logits
  std::int32_t decode_rows;  ///< at most, of passes of which every row does
};
constexpr Use kUses[] = {{1, 0, 2048, 8},
                         {1, 4096, 2048, 8},
                         {1, 512, 512, 8},
                         {32, 4096, 512, 32},
                         {256, 4096, 512, 256}};

/// Activations as sessions have them by default, and where somebody asks for a type.
struct Numbers {
  DataType activations, kv;
  Precision precision;
};
constexpr Numbers kNumbers[] = {{DataType::kBF16, DataType::kBF16, Precision::kAuto},
                                {DataType::kBF16, DataType::kBF16, Precision::kBF16},
                                {DataType::kBF16, DataType::kF16, Precision::kAuto},
                                {DataType::kF16, DataType::kF16, Precision::kBF16},
                                {DataType::kF32, DataType::kBF16, Precision::kF32}};

/// Best logits that passes find: the choice of greedy decoding, and what sampling draws from.
constexpr std::int32_t kTops[] = {1, 40};

/// Boards that run code for `arch`; where the table has none, those of its generation.
std::vector<DeviceSpec> BoardsOf(CudaArch arch) {
  std::vector<DeviceSpec> same, near;
  for (DeviceSpec& board : cuda::TypicalBoards()) {
    const int capability = board.compute_capability;
    if (capability / 10 != arch.number / 10) continue;
    board.compute_capability = arch.number;
    near.push_back(board);
    if (capability == arch.number) same.push_back(std::move(board));
  }
  return same.empty() ? near : same;
}

Status PreparePasses(Session& session, const Use& use, const KernelSurvey& survey,
                     std::int32_t vocab) {
  const auto prepare = [&](std::int32_t rows, std::int32_t wanted) -> Status {
    const Result<const Graph*> graph = session.GraphFor(rows, wanted);
    return graph ? Status() : Fail(graph.error());
  };
  for (std::int32_t rows = 1; rows <= session.max_rows(); rows *= 2) {
    if (rows > 1 && rows <= use.prompt_rows) {
      if (Status made = prepare(rows, 1); !made) return made;
    }
    if (rows > use.decode_rows) continue;
    if (Status made = prepare(rows, rows); !made) return made;
    for (const std::int32_t k : kTops) {
      survey.Pose(top_k::Desc{.type_in = DataType::kF32,
                              .type_values = k > 1 ? DataType::kF32 : DataType::kNone,
                              .rows = rows,
                              .cols = vocab,
                              .k = k});
    }
  }
  return {};
}

/// Everything that passes of `model`, whose weights are on `device`, may launch there.
Status SurveyBoard(const Model& model, const Kernels& kernels, Device& device,
                   SurveyFindings& findings) {
  for (const Numbers& numbers : kNumbers) {
    KernelSurvey survey(kernels, device, numbers.precision, findings);
    for (const Use& use : kUses) {
      SessionOptions options;
      options.kv = numbers.kv;
      options.activations = numbers.activations;
      options.logits = DataType::kF32;
      const std::int32_t most = model.config().context;
      if (use.slots == 1 && use.context >= most) continue;  // the same as the first
      options.context = use.context == 0 ? most : std::min(use.context, most);
      options.slots = use.slots;
      options.max_rows = std::max(use.prompt_rows, use.decode_rows);
      const Result<std::unique_ptr<Session>> session = Session::Create(model, survey, options);
      if (!session) return Fail(session.error());
      if (Status prepared = PreparePasses(**session, use, survey, model.config().vocab); !prepared)
        return prepared;
    }
  }
  return {};
}

/// Chains of the products of `file`: of any of its types of weights, for as many rows as passes with chains have.
void AddChains(const GgufFile& file, CudaArch arch, SurveyFindings& findings) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.dims < 2) continue;
    for (const int rows : {16, 32, 64}) {
      for (const KernelSpec& spec : GemmChainSpecs(tensor.dtype, arch, rows))
        findings.kernels.insert(SpecName(spec));
    }
  }
}

}  // namespace

Result<ModelKernels> KernelsOfModel(const GgufFile& file, CudaArch arch) {
  ArtifactStoreOptions store_options;
  store_options.mode = CacheMode::kReadonly;  // nothing is bound, so nothing is compiled
  const auto store = ArtifactStore::Open(AllKernelFamilies(), store_options);
  if (!store) return Fail(store.error());
  const auto kernels = MakeCudaKernels(**store, arch);
  if (!kernels) return Fail(kernels.error());
  std::vector<std::unique_ptr<Device>> devices;
  for (DeviceSpec& board : BoardsOf(arch)) devices.push_back(MakeUnbackedDevice(std::move(board)));
  if (devices.empty())
    return Fail(ErrorCode::kUnsupported, Format("no board is known for {}", arch.ToString()));
  ModelOptions options;
  options.device = devices[0].get();
  Result<GgufFile> own = GgufFile::Open(file.path());
  if (!own) return Fail(own.error());
  const auto model = LayOutModel(std::move(*own), options);
  if (!model) return Fail(model.error());

  SurveyFindings findings;
  for (const std::unique_ptr<Device>& device : devices) {
    // The addresses of the weights are no board's in particular.
    if (Status surveyed = SurveyBoard(**model, **kernels, *device, findings); !surveyed)
      return Fail(surveyed.error());
  }
  AddChains(file, arch, findings);
  ModelKernels needed;
  for (const auto& [what, problem] : findings.lacking) needed.unserved.push_back(problem);
  for (const KernelSpec& spec : (*store)->families().Catalog(arch)) {
    if (findings.kernels.contains(SpecName(spec))) needed.specs.push_back(spec);
  }
  return needed;
}

}  // namespace tilewright
