#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "artifact/store/fake_compiler.h"
#include "tilewright/artifact_store.h"

namespace tilewright::test {

inline constexpr auto kMemory = static_cast<std::size_t>(ArtifactLayer::kMemory);
inline constexpr auto kUser = static_cast<std::size_t>(ArtifactLayer::kUser);
inline constexpr auto kSite = static_cast<std::size_t>(ArtifactLayer::kSite);
inline constexpr auto kShared = static_cast<std::size_t>(ArtifactLayer::kShared);

inline std::size_t At(MissReason reason) { return static_cast<std::size_t>(reason); }

/// What a compiler says that read the source and refused it.
inline CompileFailure Refusal() {
  return {true, {ErrorCode::kUnsupported, "error: no such instruction"}, "x.cu(3): error: no such"};
}

/// A root of its own, and the compiler of the stores that are opened on it.
class StoreTest : public ::testing::Test {
 protected:
  ArtifactStoreOptions Options(CacheMode mode = CacheMode::kNormal) {
    ArtifactStoreOptions options = FakeOptions(root, compiler);
    options.mode = mode;
    return options;
  }
  std::unique_ptr<ArtifactStore> Open(CacheMode mode = CacheMode::kNormal) {
    return OpenFake(Options(mode));
  }

  const TemporaryFolder folder;
  const std::string root = folder / "root";
  std::shared_ptr<FakeCompiler> compiler = MakeFakeCompiler();
};

}  // namespace tilewright::test
