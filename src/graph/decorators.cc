#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/numeric.h"
#include "graph/forwarding_dispatch.h"
#include "graph/node_view.h"
#include "tilewright/kernel_dispatch.h"

namespace tilewright {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

std::string ShapeText(const TensorView& view) {
  std::string text = fmt::format("[{}, {}", view.shape[0], view.shape[1]);
  if (view.shape[2] * view.shape[3] > 1)
    text += fmt::format(", {}, {}", view.shape[2], view.shape[3]);
  return text + "] " + std::string(DataTypeName(view.dtype));
}

class TraceDispatch final : public ForwardingDispatch {
 public:
  TraceDispatch(KernelDispatch& inner, std::function<void(std::string_view)> sink)
      : ForwardingDispatch(inner), sink_(std::move(sink)) {}
  std::string_view name() const override { return "trace"; }

 protected:
  Status Around(const TensorNode& node, std::span<const TensorView> inputs, const TensorView& out,
                Call call) override {
    const auto start = Clock::now();
    Status status = call(inner());
    std::string line =
        fmt::format("{} {} {} {} <-", node.id, node.name, TensorOpName(node.op), ShapeText(out));
    for (const TensorView& input : inputs) line.append(" ").append(ShapeText(input));
    line += status ? fmt::format(" {:.1f} us", MicrosSince(start))
                   : fmt::format(" failed: {}", status.error().message);
    sink_(line);
    return status;
  }

 private:
  std::function<void(std::string_view)> sink_;
};

class TimingDispatch final : public ForwardingDispatch {
 public:
  TimingDispatch(KernelDispatch& inner, ProfileSink& sink)
      : ForwardingDispatch(inner), sink_(sink), origin_(Clock::now()) {}
  std::string_view name() const override { return "profile"; }

 protected:
  Status Around(const TensorNode& node, std::span<const TensorView>, const TensorView&,
                Call call) override {
    const double start_us = MicrosSince(origin_);
    Status status = call(inner());
    sink_.Record(ProfileEvent{node.name, node.op, start_us, MicrosSince(origin_) - start_us});
    return status;
  }

 private:
  ProfileSink& sink_;
  Clock::time_point origin_;
};

/// Bytes from data to the end of the last element of a view.
std::size_t SpanBytes(const TensorView& view) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < 4; ++d) last += (view.shape[d] - 1) * view.stride[d];
  const TypeInfo& info = GetTypeInfo(view.dtype);
  return static_cast<std::size_t>((last / info.block_elements + 1) * info.block_bytes);
}

double LoadElement(const TensorView& view, std::int64_t at) {
  switch (view.dtype) {
    case DataType::kF64:
      return view.as<double>()[at];
    case DataType::kF16:
      return F16ToF32(view.as<std::uint16_t>()[at]);
    case DataType::kBF16:
      return BF16ToF32(view.as<std::uint16_t>()[at]);
    case DataType::kI32:
      return view.as<std::int32_t>()[at];
    default:
      return view.as<float>()[at];
  }
}

/// The bytes an in-place node is about to overwrite are kept, restored for the other dispatch, and
/// the first result put back. All of it goes through the device: the host may not touch its memory.
class CompareDispatch final : public ForwardingDispatch {
 public:
  CompareDispatch(KernelDispatch& inner, KernelDispatch& other,
                  std::function<void(const NodeComparison&)> report)
      : ForwardingDispatch(inner), other_(other), report_(std::move(report)) {}
  std::string_view name() const override { return "compare"; }

  std::optional<Rejection> Supports(const Graph& graph, const TensorNode& node) const override {
    if (auto no = ForwardingDispatch::Supports(graph, node)) return no;
    if (Status status = CheckDevices(); !status)
      return Rejection{Reason::kDevice, status.error().message, ""};
    return other_.Supports(graph, node);
  }
  Status Prepare(const Graph& graph) override {
    if (Status status = ForwardingDispatch::Prepare(graph); !status) return status;
    return other_.Prepare(graph);
  }

 protected:
  Status Around(const TensorNode& node, std::span<const TensorView> inputs, const TensorView& out,
                Call call) override {
    if (Status status = CheckDevices(); !status) return status;
    NameResults(node, inputs, out);
    if (Status status = FetchAll(&Compared::before); !status) return status;
    if (Status status = call(inner()); !status) return status;
    if (Status status = FetchAll(&Compared::first); !status) return status;
    if (Status status = PutAll(&Compared::before); !status) return status;
    Status second = call(other_);
    if (second) {
      if (Status status = FetchAll(&Compared::second); !status) return status;
      Report(node);
    }
    if (Status status = PutAll(&Compared::first); !status) return status;
    return second;
  }

 private:
  /// The same views are given to both.
  Status CheckDevices() const {
    const Device *one = device(), *two = other_.device();
    if (one == two || (one->host_accessible() && two->host_accessible())) return {};
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("compare: the dispatches {} and {} share no memory: their devices differ",
                    inner().name(), other_.name()));
  }

  /// A result, and what its memory held before and after each of the calls.
  struct Compared {
    TensorView view;
    std::vector<std::byte> before, first, second;
  };

  /// The result of the node and the buffers that it writes.
  void NameResults(const TensorNode& node, std::span<const TensorView> inputs,
                   const TensorView& out) {
    results_.clear();
    const NodeRule* rule = RuleOf(node.op);
    for (std::size_t i = 0; rule != nullptr && i < inputs.size(); ++i) {
      if (((rule->writes >> i) & 1) != 0 && inputs[i].data != nullptr)
        results_.push_back({inputs[i], {}, {}, {}});
    }
    results_.push_back({out, {}, {}, {}});
  }
  Status FetchAll(std::vector<std::byte> Compared::*into) {
    for (Compared& result : results_) {
      if (Status s = Fetch(result.view.data, SpanBytes(result.view), result.*into); !s) return s;
    }
    return {};
  }
  Status PutAll(const std::vector<std::byte> Compared::*from) {
    for (const Compared& result : results_) {
      if (Status s = Put(result.view.data, result.*from); !s) return s;
    }
    return {};
  }
  static bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

  Status Fetch(const void* from, std::size_t bytes, std::vector<std::byte>& into) {
    Device& from_device = *device();
    into.resize(bytes);
    const Stream stream = from_device.default_stream();
    if (Status status = from_device.Download(into.data(), from, bytes, stream); !status)
      return status;
    return from_device.Synchronize(stream);
  }
  Status Put(void* to, const std::vector<std::byte>& from) {
    Device& to_device = *device();
    const Stream stream = to_device.default_stream();
    if (Status status = to_device.Upload(to, from.data(), from.size(), stream); !status)
      return status;
    return to_device.Synchronize(stream);
  }

  /// Of the result that is furthest away.
  void Report(const TensorNode& node) const {
    NodeComparison comparison{node.id, node.name, node.op, 0, 0};
    for (const Compared& result : results_) Compare(node.op, result, comparison);
    report_(comparison);
  }

  static void Compare(TensorOp op, const Compared& result, NodeComparison& comparison) {
    TensorView first = result.view, second = result.view, before = result.view;
    first.data = const_cast<std::byte*>(result.first.data());
    second.data = const_cast<std::byte*>(result.second.data());
    before.data = const_cast<std::byte*>(result.before.data());
    if (GetTypeInfo(second.dtype).block_quantised) return;
    double difference = 0, norm = 0;
    std::array<std::int64_t, 4> i{};
    for (i[3] = 0; i[3] < second.shape[3]; ++i[3])
      for (i[2] = 0; i[2] < second.shape[2]; ++i[2])
        for (i[1] = 0; i[1] < second.shape[1]; ++i[1]) {
          const auto at = [&](std::int64_t of_row) {
            i[0] = of_row;
            std::int64_t offset = 0;
            for (std::size_t d = 0; d < 4; ++d) offset += i[d] * second.stride[d];
            return offset;
          };
          // Positions of a cache that were not written yet may hold anything.
          const auto untouched = [&](std::int64_t of_row) {
            const std::int64_t offset = at(of_row);
            const double was = LoadElement(before, offset);
            return SameBits(LoadElement(first, offset), was) &&
                   SameBits(LoadElement(second, offset), was);
          };
          bool written = !WritesCache(op);
          for (std::int64_t k = 0; k < second.shape[0] && !written; ++k) written = !untouched(k);
          for (std::int64_t k = 0; k < second.shape[0] && written; ++k) {
            const double a = LoadElement(first, at(k)), b = LoadElement(second, at(k));
            difference += (a - b) * (a - b);
            norm += b * b;
            if (!(std::abs(a - b) <= comparison.max_abs)) comparison.max_abs = std::abs(a - b);
          }
        }
    const double distance = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
    // Written so that NaN counts as furthest.
    if (!(distance <= comparison.relative_l2)) comparison.relative_l2 = distance;
  }

  KernelDispatch& other_;
  std::function<void(const NodeComparison&)> report_;
  std::vector<Compared> results_;
};

std::string JsonEscaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out;
}

}  // namespace

std::unique_ptr<KernelDispatch> MakeTraceDispatch(KernelDispatch& inner,
                                                  std::function<void(std::string_view)> sink) {
  return std::make_unique<TraceDispatch>(inner, std::move(sink));
}

std::unique_ptr<KernelDispatch> MakeProfileDispatch(KernelDispatch& inner, ProfileSink& sink) {
  return std::make_unique<TimingDispatch>(inner, sink);
}

std::unique_ptr<KernelDispatch> MakeCompareDispatch(
    KernelDispatch& inner, KernelDispatch& other,
    std::function<void(const NodeComparison&)> report) {
  return std::make_unique<CompareDispatch>(inner, other, std::move(report));
}

void WriteChromeTrace(std::span<const ProfileEvent> events, std::ostream& out) {
  out << "{\"traceEvents\":[";
  bool first = true;
  for (const ProfileEvent& event : events) {
    out << (first ? "\n" : ",\n")
        << fmt::format(
               R"({{"name":"{}","cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":1,"tid":1}})",
               JsonEscaped(event.name), TensorOpName(event.op), event.start_us, event.duration_us);
    first = false;
  }
  out << "\n],\"displayTimeUnit\":\"ns\"}\n";
}

}  // namespace tilewright
