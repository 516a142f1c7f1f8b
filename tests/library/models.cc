#include "models.h"

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

namespace tilewright::test {
namespace {

/// SplitMix64.
std::uint64_t Next(std::uint64_t& state) {
  std::uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

template <class T>
bool Made(const Result<T>& result) {
  if (!result) ADD_FAILURE() << result.error().message;
  return result.has_value();
}

/// Relative rounding error, root mean square, of one value stored in a type: half a step,
/// uniformly.
double Rounding(DataType type) {
  const double uniform = 1 / std::sqrt(12.0);
  switch (type) {
    case DataType::kF32:
      return uniform * 0x1p-23;
    case DataType::kF16:
      return uniform * 0x1p-10;
    case DataType::kBF16:
      return uniform * 0x1p-7;
    // Blocks of 32: the largest of 32 normal values is about 2.1 deviations, the step a 127th of
    // it.
    case DataType::kQ8_0:
      return uniform * 2.1 / 127;
    default:
      return 0;
  }
}
double Rounding(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return Rounding(DataType::kF32);
    case Precision::kBF16:
      return Rounding(DataType::kBF16);
    default:
      return Rounding(DataType::kQ8_0);
  }
}

}  // namespace

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "tilewright_test_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder " << name;
  path_ = name;
}
TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

SynthShape TinyShape() {
  SynthShape shape = FindSynthPreset("tiny-test").value();
  shape.context = 128;
  return shape;
}

std::string WriteTiny(const TempDir& folder, const std::string& name, const SynthShape& shape,
                      DataType quant, std::uint64_t seed) {
  const std::string path = folder / (name + ".gguf");
  if (std::filesystem::exists(path)) return path;
  Made(WriteSynthetic({.shape = shape, .quant = quant, .seed = seed}, path));
  return path;
}

std::string WriteMix(const TempDir& folder, const SynthShape& shape, const std::string& mix) {
  const std::string path = folder / (mix + ".gguf");
  Made(WriteSynthetic({.shape = shape, .mix = mix, .seed = 1}, path));
  return path;
}

SynthShape WideShape() {
  SynthShape shape = TinyShape();
  shape.hidden = 256;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 64;
  shape.ffn = 512;
  return shape;
}

EditedModel::EditedModel(const std::string& path) {
  Result<GgufFile> file = GgufFile::Open(path);
  if (!Made(file)) return;
  file_ = std::make_shared<GgufFile>(std::move(*file));
  for (const GgufEntry& entry : file_->entries()) {
    if (entry.key == "general.alignment") continue;
    const std::string key(entry.key);
    entries_.push_back(
        {key, [key, value = entry.value](GgufWriter& writer) { writer.SetValue(key, value); }});
  }
  for (const GgufTensor& tensor : file_->tensors()) {
    const std::span<const std::byte> bytes = file_->Bytes(tensor);
    tensors_.push_back({{std::string(tensor.name), tensor.dtype, tensor.shape, tensor.dims},
                        {bytes.begin(), bytes.end()}});
  }
}

void EditedModel::Put(const std::string& key, Edit put) {
  RemoveKey(key);
  entries_.push_back({key, std::move(put)});
}
void EditedModel::RemoveKey(const std::string& key) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.key == key; });
}
void EditedModel::SetU32(const std::string& key, std::uint32_t value) {
  Put(key, [=](GgufWriter& writer) { writer.SetU32(key, value); });
}
void EditedModel::SetU64(const std::string& key, std::uint64_t value) {
  Put(key, [=](GgufWriter& writer) { writer.SetU64(key, value); });
}
void EditedModel::SetI32(const std::string& key, std::int32_t value) {
  Put(key, [=](GgufWriter& writer) { writer.SetI32(key, value); });
}
void EditedModel::SetF32(const std::string& key, float value) {
  Put(key, [=](GgufWriter& writer) { writer.SetF32(key, value); });
}
void EditedModel::SetString(const std::string& key, const std::string& value) {
  Put(key, [=](GgufWriter& writer) { writer.SetString(key, value); });
}
void EditedModel::SetBools(const std::string& key, const std::vector<bool>& values) {
  std::vector<std::byte> bytes;
  for (const bool value : values) bytes.push_back(std::byte{value});
  Put(key, [=](GgufWriter& writer) {
    writer.SetValue(key, GgufValue(GgufType::kArray, GgufType::kBool, bytes.size(), bytes));
  });
}

EditedModel::Tensor& EditedModel::tensor(const std::string& name) {
  for (Tensor& tensor : tensors_) {
    if (tensor.spec.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  static Tensor none;
  return none;
}
void EditedModel::RemoveTensor(const std::string& name) {
  tensor(name);
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.spec.name == name; });
}
void EditedModel::AddF32(const std::string& name, std::array<std::int64_t, 4> shape, int dims) {
  tensors_.push_back({{name, DataType::kF32, shape, dims}, {}});
  Reshape(name, shape, dims);
}
void EditedModel::Reshape(const std::string& name, std::array<std::int64_t, 4> shape, int dims) {
  Tensor& changed = tensor(name);
  changed.spec.shape = shape;
  changed.spec.dims = dims;
  changed.bytes.resize(BytesOf(changed.spec.dtype, shape[0] * shape[1] * shape[2] * shape[3]));
}

void EditedModel::Write(const std::string& path) const {
  GgufWriter writer;
  for (const Entry& entry : entries_) entry.put(writer);
  for (const Tensor& tensor : tensors_) {
    if (Status status = writer.AddTensor(tensor.spec); !status)
      ADD_FAILURE() << status.error().message;
  }
  const Status status = writer.Write(path, [&](std::size_t index, const GgufWriter::Sink& sink) {
    return sink(tensors_[index].bytes);
  });
  if (!status) ADD_FAILURE() << status.error().message;
}

std::unique_ptr<Runner> Runner::Make(const std::string& path, const RunnerOptions& options) {
  auto runner = std::make_unique<Runner>();
  ContextOptions context_options;
  context_options.threads = options.threads;
  context_options.cache_mode = CacheMode::kRefresh;
  if (!options.vendor) context_options.providers = Bit(Provider::kOwn) | Bit(Provider::kUser);
  Result<std::unique_ptr<Context>> context = Context::Create(context_options);
  if (!Made(context)) return nullptr;
  runner->context = std::move(*context);
  runner->cpu = runner->context->MakeDispatch(options.activations, options.guarantee);
  if (options.float64) runner->reference = MakeReferenceDispatch(&runner->context->executor());
  ModelOptions model_options;
  model_options.fuse = options.fuse;
  model_options.fusions = options.fusions;
  model_options.packer = options.float64 || !options.pack ? nullptr : runner->cpu.get();
  model_options.executor = &runner->context->executor();
  Result<std::unique_ptr<Model>> model = Model::Load(path, model_options);
  if (!Made(model)) return nullptr;
  runner->model = std::move(*model);
  SessionOptions session_options;
  session_options.kv = options.float64 ? DataType::kF64 : options.kv;
  session_options.activations = options.float64 ? DataType::kF64 : DataType::kF32;
  session_options.normed = options.normed;
  session_options.logits = options.logits;
  session_options.context = options.context;
  session_options.slots = options.slots;
  session_options.max_rows = options.max_rows;
  Result<std::unique_ptr<Session>> session =
      Session::Create(*runner->model, runner->dispatch(), session_options);
  if (!Made(session)) return nullptr;
  runner->session = std::move(*session);
  return runner;
}

std::vector<TokenId> RandomTokens(int count, int vocab, std::uint64_t seed) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (TokenId& token : tokens) {
    token = static_cast<TokenId>(Next(seed) % static_cast<std::uint64_t>(vocab));
  }
  return tokens;
}

std::vector<float> LogitsOf(Session& session, std::span<const TokenId> tokens, int slot, int from,
                            int chunk) {
  std::vector<float> all;
  for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(chunk)) {
    std::vector<Row> rows;
    for (std::size_t i = at; i < std::min(tokens.size(), at + static_cast<std::size_t>(chunk));
         ++i) {
      rows.push_back({tokens[i], from + static_cast<std::int32_t>(i), slot, true});
    }
    const Result<std::span<const float>> logits = session.Forward(rows);
    if (!Made(logits)) return all;
    all.insert(all.end(), logits->begin(), logits->end());
  }
  return all;
}

double WorstRow(std::span<const float> got, std::span<const float> want, std::size_t vocab) {
  if (got.size() != want.size() || got.empty() || got.size() % vocab != 0) return HUGE_VAL;
  double worst = 0;
  for (std::size_t at = 0; at < got.size(); at += vocab) {
    double difference = 0, norm = 0;
    for (std::size_t i = at; i < at + vocab; ++i) {
      const double d = static_cast<double>(got[i]) - static_cast<double>(want[i]);
      difference += d * d;
      norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    }
    const double distance = std::sqrt(difference / norm);
    if (!(distance <= worst)) worst = std::isfinite(distance) ? distance : HUGE_VAL;
  }
  return worst;
}

double LogitBound(const SynthShape& shape, Precision activations, DataType kv) {
  const double products = 4 * shape.layers + 1;
  const double sums = products * std::max(shape.hidden, shape.ffn);
  const double squares = products * std::pow(Rounding(activations), 2) +
                         2 * shape.layers * std::pow(Rounding(kv), 2) +
                         sums * std::pow(Rounding(DataType::kF32), 2);
  return 3 * std::sqrt(squares);
}

void IsaTest::SetUp() {
  const Result<DeviceSpec> device = DetectCpu();
  if (!device && device.error().code == ErrorCode::kUnavailable) {
    GTEST_SKIP() << device.error().message;
  }
}

}  // namespace tilewright::test
