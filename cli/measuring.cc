#include "measuring.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "console.h"

namespace tilewright::cli {

Result<Measuring> Measuring::Start(Context& context, const TrialOptions& trial,
                                   std::string_view verb) {
  const MeasurerOptions options = {.policy = context.scope().policy, .trial = trial};
  Measuring measuring(context, options);
  Result<std::unique_ptr<MeasureWorker>> worker = context.StartWorker(options);
  if (worker) {
    measuring.worker_ = std::move(*worker);
    return measuring;
  }
  if (context.device_spec().kind != DeviceKind::kCpu) {
    const std::string& why = worker.error().message;
    const bool says_how = why.find("TILEWRIGHT_WORKER") != std::string::npos;
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("{} on {} needs a worker process: {}{}", verb, context.device_name(), why,
                    says_how ? ""
                             : "; install that of this build, or name it in "
                               "TILEWRIGHT_WORKER"));
  }
  Warn(fmt::format("kernels are tried in this process, which one that crashes would end: {}",
                   worker.error().message));
  return measuring;
}

GemmWords UsualWords(const Context& context) {
  GemmWords words;
  if (context.device_spec().kind == DeviceKind::kCpu) return words;
  words.type_a = words.type_c = DataTypeName(context.DefaultSession().activations);
  return words;
}

GemmDesc PosedOn(const DeviceSpec& device, GemmDesc desc) {
  if (device.kind == DeviceKind::kCpu || desc.align_a != 0 || desc.align_b != 0 ||
      desc.align_c != 0 || desc.n < 1 || desc.k < 1)
    return desc;
  // Up to the 16 bytes of the widest load.
  const auto aligned = [](DataType type, std::int64_t line) {
    return static_cast<std::uint8_t>(
        std::min(4, std::countr_zero(static_cast<std::uint64_t>(BytesOf(type, line)))));
  };
  const std::int64_t columns = desc.epilogue == Epilogue::kGatedSilu ? desc.n / 2 : desc.n;
  desc.align_a = aligned(desc.type_a, desc.order_a == Order::kRowMajor ? desc.k : desc.m);
  desc.align_b = aligned(desc.type_b, desc.order_b == Order::kColMajor ? desc.k : desc.n);
  desc.align_c = aligned(desc.type_c, desc.order_c == Order::kRowMajor ? columns : desc.m);
  // A row of weights, which begins where memory does.
  if (desc.prologue != Prologue::kNone) desc.align_norm = 4;
  return desc;
}

}  // namespace tilewright::cli
