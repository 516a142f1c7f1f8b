#include "engine/tune/trial_memory.h"

#include <algorithm>

namespace tilewright {
namespace {

bool Rotates(const TrialTensor& tensor) {
  return tensor.role == TrialRole::kStored || tensor.role == TrialRole::kUpdated;
}

std::size_t RoundUp(std::size_t value, std::size_t to) { return (value + to - 1) / to * to; }

}  // namespace

Status TrialMemory::Place(std::span<const TrialTensor> tensors, RotatingCopies& rotation) {
  memory_.clear(), sizes_.clear(), views_.clear(), offsets_.clear();
  rotating_ = DeviceMemory();
  stride_ = 0, copies_ = 1;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    sizes_.push_back(BytesOf(tensors[i].view));
    Result<DeviceMemory> memory = device_.Allocate(sizes_[i] + 2 * kGuard);
    if (!memory) return Fail(memory.error());
    memory_.push_back(std::move(*memory));
    views_.push_back(tensors[i].view);
    views_[i].data = memory_[i].as<std::byte>() + kGuard;
    if (Status s = Write(i, tensors[i].content); !s) return s;
    offsets_.push_back(stride_);
    if (Rotates(tensors[i])) stride_ += RoundUp(sizes_[i], 64);
  }
  const int count = rotation.CountFor(stride_);
  return count > 1 ? MakeCopies(tensors, count) : device_.Synchronize(stream_);
}

Status TrialMemory::MakeCopies(std::span<const TrialTensor> tensors, int count) {
  Result<DeviceMemory> memory = device_.Allocate(stride_ * static_cast<std::size_t>(count));
  if (!memory) return Fail(memory.error());
  rotating_ = std::move(*memory);
  auto* first = rotating_.as<std::byte>();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!Rotates(tensors[i])) continue;
    if (Status s =
            device_.Upload(first + offsets_[i], tensors[i].content.data(), sizes_[i], stream_);
        !s) {
      return s;
    }
  }
  for (int copy = 1; copy < count; ++copy) {
    if (Status s =
            device_.Copy(first + static_cast<std::size_t>(copy) * stride_, first, stride_, stream_);
        !s) {
      return s;
    }
  }
  copies_ = count;
  return device_.Synchronize(stream_);
}

void TrialMemory::UseCopy(int copy, std::span<TensorView> views) const {
  if (!rotating_) return;
  std::byte* const base = rotating_.as<std::byte>() + static_cast<std::size_t>(copy) * stride_;
  for (std::size_t i = 0; i < views.size(); ++i) {
    const std::size_t end = i + 1 < offsets_.size() ? offsets_[i + 1] : stride_;
    if (end > offsets_[i]) views[i].data = base + offsets_[i];
  }
}

Status TrialMemory::Write(std::size_t i, std::span<const std::byte> content) {
  auto* const start = memory_[i].as<std::byte>();
  if (Status s = device_.Fill(start, 0xff, sizes_[i] + 2 * kGuard, stream_); !s) return s;
  if (content.empty()) return {};
  return device_.Upload(start + kGuard, content.data(), sizes_[i], stream_);
}

Result<std::vector<std::byte>> TrialMemory::Read(std::size_t i) const {
  std::vector<std::byte> content(sizes_[i]);
  Status s =
      device_.Download(content.data(), memory_[i].as<std::byte>() + kGuard, sizes_[i], stream_);
  if (s) s = device_.Synchronize(stream_);
  if (!s) return Fail(s.error());
  return content;
}

Result<std::string> TrialMemory::DamagedGuard(std::span<const TrialTensor> tensors) const {
  std::vector<std::byte> guard(kGuard);
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    for (const std::size_t at : {std::size_t{0}, kGuard + sizes_[i]}) {
      Status s = device_.Download(guard.data(), memory_[i].as<std::byte>() + at, kGuard, stream_);
      if (s) s = device_.Synchronize(stream_);
      if (!s) return Fail(s.error());
      const bool intact = std::all_of(guard.begin(), guard.end(),
                                      [](std::byte byte) { return byte == std::byte{0xff}; });
      if (!intact) return std::string(tensors[i].name);
    }
  }
  return std::string();
}

Status TrialWorkspace::Reserve(const WorkspaceSize& size, Stream stream) {
  if (size.partials > partials_.size()) {
    Result<DeviceMemory> memory = device_.Allocate(size.partials);
    if (!memory) return Fail(memory.error());
    partials_ = std::move(*memory);
    workspace_.partials = partials_.data(), workspace_.partials_size = partials_.size();
  }
  if (size.barriers > barriers_.size()) {
    Result<DeviceMemory> memory = device_.Allocate(size.barriers);
    if (!memory) return Fail(memory.error());
    barriers_ = std::move(*memory);
    workspace_.barriers = barriers_.data(), workspace_.barriers_size = barriers_.size();
    return device_.Fill(barriers_.data(), 0, barriers_.size(), stream);
  }
  return {};
}

Status TrialWorkspace::Poison(Stream stream) {
  if (!partials_) return {};
  return device_.Fill(partials_.data(), 0xff, partials_.size(), stream);
}

}  // namespace tilewright
