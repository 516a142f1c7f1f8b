#pragma once

#include <string>
#include <utility>

#include "artifact/store/fake_compiler.h"

namespace tilewright::cuda {

/// A compiler whose images are whole by their header and hold no code: the fake GPU loads them.
class ElfCompiler final : public KernelCompiler {
 public:
  ElfCompiler() = default;
  explicit ElfCompiler(test::FakeCompiler::Options options) : fake_(std::move(options)) {}
  const CompilerIdentity& identity() const override { return fake_.identity(); }
  tl::expected<CompileOutput, CompileFailure> Compile(const CompileJob& job,
                                                      const CancelFn& cancelled) const override {
    auto output = fake_.Compile(job, cancelled);
    if (output) output->cubin = "\177ELF" + std::string(60, '\0') + output->cubin;
    return output;
  }
  int compiles() const { return fake_.compiles(); }

 private:
  test::FakeCompiler fake_;
};

}  // namespace tilewright::cuda
