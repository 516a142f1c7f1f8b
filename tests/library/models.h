#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tilewright/generate.h"
#include "tilewright/gguf.h"
#include "tilewright/synth.h"
#include "tilewright/tilewright.h"

/// Small random models and what runs them, for tests that see the library as its users do.

namespace tilewright::test {

/// A folder that goes away with the object.
class TempDir {
 public:
  TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string str() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// The preset tiny-test with a context of 128 positions.
SynthShape TinyShape();

/// 256 hidden: every block format divides it, so that each matrix really has the type asked for.
SynthShape WideShape();

/// Writes a random model of `shape` into `folder`, once for each distinct name; returns its path.
std::string WriteTiny(const TempDir& folder, const std::string& name, const SynthShape& shape,
                      DataType quant, std::uint64_t seed = 1);

/// As WriteTiny, of one of SynthMixes; the name is the mix's.
std::string WriteMix(const TempDir& folder, const SynthShape& shape, const std::string& mix);

/// A model file taken apart, to be changed and written again.
class EditedModel {
 public:
  struct Tensor {
    GgufTensorSpec spec;
    std::vector<std::byte> bytes;
  };

  explicit EditedModel(const std::string& path);

  void RemoveKey(const std::string& key);
  void SetU32(const std::string& key, std::uint32_t value);
  void SetU64(const std::string& key, std::uint64_t value);
  void SetI32(const std::string& key, std::int32_t value);
  void SetF32(const std::string& key, float value);
  void SetString(const std::string& key, const std::string& value);
  void SetBools(const std::string& key, const std::vector<bool>& values);

  /// The test fails where there is no such tensor.
  Tensor& tensor(const std::string& name);
  void RemoveTensor(const std::string& name);
  /// Random f32 values of the shape.
  void AddF32(const std::string& name, std::array<std::int64_t, 4> shape, int dims);
  /// Gives `name` another shape, with bytes that fit it.
  void Reshape(const std::string& name, std::array<std::int64_t, 4> shape, int dims);

  void Write(const std::string& path) const;

 private:
  using Edit = std::function<void(GgufWriter&)>;
  struct Entry {
    std::string key;
    Edit put;
  };
  void Put(const std::string& key, Edit put);

  std::shared_ptr<GgufFile> file_;  // entries refer to its bytes
  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
};

struct RunnerOptions {
  Precision activations = Precision::kF32;
  Guarantee guarantee = Guarantee::kFastest;
  DataType kv = DataType::kF32;
  bool fuse = true;
  FusionSet fusions = FusionSet::All();
  DataType normed = DataType::kNone, logits = DataType::kNone;  ///< SessionOptions
  bool pack = true;      ///< let the CPU dispatch choose layouts; else weights stay plain
  bool float64 = false;  ///< the reference dispatch on f64 tensors, weights plain
  int context = 128;
  int slots = 1;
  int max_rows = 512;
  int threads = 2;
  bool vendor = true;  ///< vendor libraries may run
};

/// A model with all that is needed to run it.
struct Runner {
  std::unique_ptr<Context> context;
  std::unique_ptr<DeviceDispatch> cpu;
  std::unique_ptr<KernelDispatch> reference;
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;

  /// nullptr, and a failed test, where something cannot be made.
  static std::unique_ptr<Runner> Make(const std::string& path, const RunnerOptions& options);
  KernelDispatch& dispatch() { return reference ? *reference : static_cast<KernelDispatch&>(*cpu); }
};

/// `count` tokens below `vocab`, by seed.
std::vector<TokenId> RandomTokens(int count, int vocab, std::uint64_t seed);

/// Logits of `tokens` at positions from, from + 1, ... of `slot`, in passes of `chunk` rows,
/// copied.
std::vector<float> LogitsOf(Session& session, std::span<const TokenId> tokens, int slot, int from,
                            int chunk);

/// Largest relative L2 distance over the rows of two [rows][vocab] arrays; infinity for a NaN.
double WorstRow(std::span<const float> got, std::span<const float> want, std::size_t vocab);

/// What may separate the logits: every product rounds its activations once, every layer reads keys
/// and values that were rounded once; f32 sums of k terms add sqrt(k) roundings of f32. Independent
/// errors add as squares; a layer's error grows on its way through the nonlinear parts, which the
/// factor of 3 allows for.
double LogitBound(const SynthShape& shape, Precision activations, DataType kv);

/// Skips every test of the fixture where TILEWRIGHT_ISA asks for what this processor lacks.
class IsaTest : public testing::Test {
 protected:
  void SetUp() override;
  TempDir folder_;
};

}  // namespace tilewright::test
