#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/tune/measuring.h"
#include "engine/tune/trial.h"
#include "tilewright/device.h"

namespace tilewright {

/// The tensors of a trial in the memory of a device: each once between guard bands for the check,
/// and those that a pass reads from memory in as many copies as the policy asks for.
class TrialMemory {
 public:
  TrialMemory(Device& device, Stream stream) : device_(device), stream_(stream) {}

  Status Place(std::span<const TrialTensor> tensors, RotatingCopies& rotation);

  /// The guarded tensors.
  std::span<const TensorView> guarded() const { return views_; }
  int copies() const { return copies_; }
  /// Bytes that one copy of what rotates takes.
  std::size_t rotating_bytes() const { return stride_; }
  /// `views` with what rotates in copy `copy`.
  void UseCopy(int copy, std::span<TensorView> views) const;

  /// Fills tensor `i` and its guards: with `content`, or with poison where that is empty.
  Status Write(std::size_t i, std::span<const std::byte> content);
  /// The content of tensor `i`; waits for the stream.
  Result<std::vector<std::byte>> Read(std::size_t i) const;
  /// The name of the first tensor whose guards were written; "" for none.
  Result<std::string> DamagedGuard(std::span<const TrialTensor> tensors) const;

  static constexpr std::size_t kGuard = 4096;

 private:
  Status MakeCopies(std::span<const TrialTensor> tensors, int count);

  Device& device_;
  Stream stream_;
  std::vector<DeviceMemory> memory_;
  std::vector<std::size_t> sizes_;
  std::vector<TensorView> views_;
  DeviceMemory rotating_;
  std::vector<std::size_t> offsets_;  // of the tensors that rotate, in one copy
  std::size_t stride_ = 0;
  int copies_ = 1;
};

/// Scratch memory of the candidates of one problem, grown on demand.
class TrialWorkspace {
 public:
  explicit TrialWorkspace(Device& device) : device_(device) {}
  Status Reserve(const WorkspaceSize& size, Stream stream);
  /// What a kernel leaves in its scratch memory must not matter.
  Status Poison(Stream stream);
  Workspace& get() { return workspace_; }

 private:
  Device& device_;
  DeviceMemory barriers_, partials_;
  Workspace workspace_;
};

}  // namespace tilewright
