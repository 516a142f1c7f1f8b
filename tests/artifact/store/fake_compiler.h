#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tilewright/artifact_store.h"
#include "tilewright/compiler.h"
#include "tilewright/kernel_family.h"

namespace tilewright::test {

/// Makes bytes that are a pure function of the job and of the compiler's identity, as NVRTC does,
/// and counts. What it is to do beside that is set before it is used.
class FakeCompiler : public KernelCompiler {
 public:
  struct Options {
    std::string build_id = "00112233445566778899aabbccddeeff00112233";
    std::string version = "13.0";
    std::size_t cubin_bytes = 2000;
    std::chrono::milliseconds takes{0};
    double reported_ms = 25;  ///< what it says it took
    std::string log_file{};   ///< one line a compilation, appended
    std::string salt{};       ///< makes other bytes under the same identity
    bool hangs = false;       ///< until it is cancelled
    /// Instead of compiling where it returns something; it may throw.
    std::function<std::optional<CompileFailure>(const CompileJob&)> fails{};
    /// Told at the begin of each compilation.
    std::function<void(const CompileJob&)> begins{};
  };
  explicit FakeCompiler(Options options);
  FakeCompiler() : FakeCompiler(Options()) {}

  const CompilerIdentity& identity() const override { return identity_; }
  tl::expected<CompileOutput, CompileFailure> Compile(const CompileJob& job,
                                                      const CancelFn& cancelled) const override;

  int compiles() const { return compiles_.load(); }
  /// Compilations that ran at the same time, at most.
  int most_at_once() const { return most_at_once_.load(); }

 private:
  Options options_;
  CompilerIdentity identity_;
  mutable std::atomic<int> compiles_{0};
  mutable std::atomic<int> running_{0};
  mutable std::atomic<int> most_at_once_{0};
};

std::shared_ptr<FakeCompiler> MakeFakeCompiler(FakeCompiler::Options options = {});

/// Text of sources, kept for the program's life as a family's files must be.
struct FakeSources {
  std::string gemm = "#include \"spec.cuh\"\n#include \"fake/tile.cuh\"\nkernel gemm\n";
  std::string tile = "// tile.cuh\n";
  std::string norm = "#include \"spec.cuh\"\nkernel norm\n";
};
inline constexpr std::uint16_t kTileOfNoMemory = 65535;
/// Two families, fake_gemm (gemm.cu, tile.cuh) and fake_norm (norm.cu). fake_gemm refuses tile_m =
/// 0, runs out of memory at kTileOfNoMemory, and has the four layouts for a catalog.
KernelFamilies FakeFamilies(const FakeSources& sources = {}, std::uint32_t launch_abi = 1);

/// fake_gemm, "tn", sm_90a; `n` makes different ones.
KernelSpec GemmSpec(int n = 0);
KernelSpec NormSpec(int n = 0);
std::vector<KernelSpec> GemmSpecs(int count);
/// NT, TN, NN, TT.
std::vector<KernelSpec> LayoutSpecs();

/// A folder that goes away with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string ReadWhole(const std::string& path);
void WriteWhole(const std::string& path, const std::string& bytes);
std::size_t CountLines(const std::string& path);
/// All regular files under a folder, by path.
std::vector<std::string> FilesUnder(const std::string& folder);
/// Entry files of a store's root.
std::vector<std::string> EntryFilesUnder(const std::string& root);
std::size_t OpenDescriptors();

/// Options with a root, a compiler, two threads.
ArtifactStoreOptions FakeOptions(const std::string& root,
                                 std::shared_ptr<const KernelCompiler> compiler);
/// Open, which must succeed.
std::unique_ptr<ArtifactStore> OpenFake(ArtifactStoreOptions options,
                                        const KernelFamilies& families = FakeFamilies());

}  // namespace tilewright::test
