#include "model/session/pass_results.h"

#include <utility>

#include "core/block_format.h"

namespace tilewright {

Status PassResults::Reserve(DeviceMemory& memory, std::size_t bytes) {
  if (device_.host_accessible() || bytes <= memory.size()) return {};
  Result<DeviceMemory> larger = device_.AllocateStaging(bytes);
  if (!larger) return Fail(larger.error());
  memory = std::move(*larger);
  return {};
}

Status PassResults::ReserveLogits(const TensorView& logits) {
  const auto elements = static_cast<std::size_t>(logits.elements());
  if (logits.dtype != DataType::kF32 && as_floats_.size() < elements) as_floats_.resize(elements);
  return Reserve(logits_, BytesOf(logits.dtype, logits.elements()));
}

Status PassResults::ReserveTop(const TensorView& ids) {
  return Reserve(top_,
                 static_cast<std::size_t>(ids.elements()) * (sizeof(TokenId) + sizeof(float)));
}

Result<std::span<const float>> PassResults::ReadLogits(const TensorView& logits, std::int32_t rows,
                                                       Stream stream) {
  const std::int64_t elements = logits.shape[0] * rows;
  void* data = logits.data;
  if (!device_.host_accessible()) {
    data = logits_.data();
    if (Status s = device_.Download(data, logits.data, BytesOf(logits.dtype, elements), stream); !s)
      return Fail(s.error());
  }
  if (Status status = device_.Synchronize(stream); !status) return Fail(status.error());
  if (logits.dtype != DataType::kF32) {
    if (Status s = DecodeRow(logits.dtype, data, elements, as_floats_.data()); !s)
      return Fail(s.error());
    data = as_floats_.data();
  }
  return std::span<const float>(static_cast<const float*>(data),
                                static_cast<std::size_t>(elements));
}

Result<TopLogits> PassResults::ReadTop(const TensorView& ids, const TensorView* values,
                                       std::int32_t rows, Stream stream) {
  const auto count = static_cast<std::size_t>(ids.shape[0] * rows);
  const TokenId* best = ids.as<const TokenId>();
  const float* logits = values != nullptr ? values->as<const float>() : nullptr;
  if (!device_.host_accessible()) {
    auto* host_ids = top_.as<TokenId>();
    auto* host_logits = reinterpret_cast<float*>(host_ids + count);
    if (Status s = device_.Download(host_ids, best, count * sizeof *best, stream); !s)
      return Fail(s.error());
    best = host_ids;
    if (logits != nullptr) {
      if (Status s = device_.Download(host_logits, logits, count * sizeof *logits, stream); !s)
        return Fail(s.error());
      logits = host_logits;
    }
  }
  if (Status status = device_.Synchronize(stream); !status) return Fail(status.error());
  TopLogits top{.k = static_cast<std::int32_t>(ids.shape[0]), .ids = {best, count}, .logits = {}};
  if (logits != nullptr) top.logits = {logits, count};
  return top;
}

}  // namespace tilewright
