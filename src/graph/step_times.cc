#include "tilewright/step_times.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "core/text.h"
#include "graph/node_view.h"

namespace tilewright {
namespace {

using Steps = std::vector<const PreparedStep*>;

/// Steps of a group that are timed together, at least.
constexpr std::size_t kStepsTogether = 64;
/// A sample takes at least as long, beside which starting and waiting for it is little.
constexpr double kSampleUs = 2000;

double BytesOfView(const TensorView& view) {
  return static_cast<double>(BytesOf(view.dtype, view.elements()));
}

bool IsOfExperts(TensorOp op) {
  return op == TensorOp::kMulMatExperts || op == TensorOp::kMulMatExpertsSwiGlu;
}

bool IsAttention(TensorOp op) {
  return op == TensorOp::kAttention || op == TensorOp::kRopeAttention;
}

bool IsProduct(TensorOp op) {
  return op == TensorOp::kMulMat || op == TensorOp::kMulMatAdd || op == TensorOp::kMulMatSwiGlu ||
         op == TensorOp::kNormMulMat || op == TensorOp::kNormMulMatSwiGlu || IsOfExperts(op);
}

/// Of the matrices of w [k, n, experts], at most one for each row of the result is read.
double ShareOfExperts(const NodeView& node) {
  return std::min(
      1.0, static_cast<double>(node.out.shape[1]) / static_cast<double>(node.in(1).shape[2]));
}

/// Of the result; of rows into a cache as many as they have before.
double BytesWritten(const NodeView& node) {
  if (!WritesCache(node.op)) return BytesOfView(node.out);
  // The turned queries are a buffer, which is among the inputs.
  if (node.op == TensorOp::kRopeQkvScatter)
    return BytesOfView(node.in(1)) + BytesOfView(node.in(2));
  if (node.op == TensorOp::kRopeAttention)
    return BytesOfView(node.in(1)) + BytesOfView(node.in(2)) + BytesOfView(node.out);
  return BytesOfView(node.in(0));
}

double LeastBytes(const NodeView& node, const CacheLoad& cache) {
  double bytes = BytesWritten(node);
  if (IsAttention(node.op)) bytes += cache.bytes_per_position * cache.positions_read;
  for (std::size_t i = 0; i < node.input_count; ++i) {
    const NodeView::Input& input = node.inputs[i];
    if (!input.present || input.storage == LeafKind::kCache) continue;
    // Of a table only the rows that are asked for are read.
    const bool table = node.op == TensorOp::kEmbedding && i == 0;
    const double share = IsOfExperts(node.op) && i == 1 ? ShareOfExperts(node) : 1;
    bytes += table ? static_cast<double>(BytesOf(input.view.dtype, node.out.elements()))
                   : share * BytesOfView(input.view);
  }
  return bytes;
}

double Operations(const NodeView& node, const CacheLoad& cache) {
  if (IsProduct(node.op)) {
    const bool gated = node.op == TensorOp::kMulMatSwiGlu ||
                       node.op == TensorOp::kNormMulMatSwiGlu ||
                       node.op == TensorOp::kMulMatExpertsSwiGlu;
    const double both = gated ? 2 : 1;
    return 2 * both * static_cast<double>(node.in(0).shape[0]) *
           static_cast<double>(node.out.elements());
  }
  if (IsAttention(node.op)) {
    const TensorView& q = node.in(0);
    return 4.0 * static_cast<double>(q.shape[0] * q.shape[1]) * cache.positions_scored;
  }
  return 0;
}

/// f(view of a node) for every node that a step computes, in their order.
template <class F>
void ForEachNode(const Graph& graph, const PreparedStep& step, F&& f) {
  for (const NodeId id : step.also) f(ViewOf(graph, graph.node(id)));
  f(ViewOf(graph, graph.node(step.node)));
}

/// What the steps of a group have in common.
using GroupKey = std::tuple<TensorOp, std::string, std::string, std::string>;

GroupKey KeyOfStep(const Graph& graph, const PreparedStep& step) {
  std::string shapes;
  const auto add = [&](const TensorView& view) {
    shapes += Format("{} {} {} {} {};", DataTypeName(view.dtype), view.shape[0], view.shape[1],
                     view.shape[2], view.shape[3]);
  };
  ForEachNode(graph, step, [&](const NodeView& node) {
    add(node.out);
    for (std::size_t i = 0; i < node.input_count; ++i) {
      if (node.inputs[i].present) add(node.in(i));
    }
  });
  return {graph.node(step.node).op, step.kernel, step.spec, std::move(shapes)};
}

/// Runs of something in a stream, timed from the host. What runs is long enough for that.
class Stopwatch {
 public:
  Stopwatch(Device& device, Stream stream, int repeat)
      : device_(device), stream_(stream), repeat_(repeat) {}

  /// Microseconds of one call of `run`, which submits work to the stream: the median of samples.
  Result<double> Time(const std::function<Status()>& run) const {
    Result<double> once = Sample(run, 1);  // for warming up
    if (once) once = Sample(run, 1);
    if (!once) return once;
    const int calls = std::clamp(static_cast<int>(kSampleUs / std::max(*once, 1.0)), 1, 1000);
    std::vector<double> samples;
    for (int i = 0; i < repeat_; ++i) {
      Result<double> sample = Sample(run, calls);
      if (!sample) return sample;
      samples.push_back(*sample);
    }
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
  }

 private:
  Result<double> Sample(const std::function<Status()>& run, int calls) const {
    if (Status s = device_.Synchronize(stream_); !s) return Fail(s.error());
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < calls; ++i) {
      if (Status s = run(); !s) return Fail(s.error());
    }
    if (Status s = device_.Synchronize(stream_); !s) return Fail(s.error());
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    return took.count() / calls;
  }

  Device& device_;
  Stream stream_;
  int repeat_;
};

/// One round of `steps` and more, until there are kStepsTogether of them.
Result<double> TimeGroup(const Steps& steps, Device& device, Stream stream,
                         const Stopwatch& watch) {
  const std::size_t rounds = (kStepsTogether + steps.size() - 1) / steps.size();
  const auto submit = [&]() -> Status {
    for (std::size_t i = 0; i < rounds; ++i) {
      for (const PreparedStep* step : steps) {
        if (Status s = step->Run(stream); !s) return s;
      }
    }
    return {};
  };
  const bool captures = device.can_capture() &&
                        std::all_of(steps.begin(), steps.end(),
                                    [](const PreparedStep* step) { return step->only_submits(); });
  std::unique_ptr<DeviceGraph> captured;
  if (captures) {
    Result<std::unique_ptr<DeviceGraph>> made = device.Capture(stream, submit);
    if (!made) return Fail(made.error());
    captured = std::move(*made);
  }
  Result<double> round = watch.Time([&] { return captured ? captured->Launch(stream) : submit(); });
  if (!round) return round;
  return *round / static_cast<double>(rounds * steps.size());
}

}  // namespace

Result<StepTimes> TimeSteps(const PreparedGraph& graph, Device& device, Stream stream,
                            const CacheLoad& cache, int repeat) {
  if (repeat < 1) {
    return Fail(ErrorCode::kInvalidArgument, Format("repeat = {}: must be at least 1", repeat));
  }
  StepTimes times;
  std::vector<Steps> members;
  std::map<GroupKey, std::size_t> known;
  for (const std::unique_ptr<PreparedStep>& step : graph.steps()) {
    const TensorNode& node = graph.graph().node(step->node);
    const auto [at, fresh] = known.emplace(KeyOfStep(graph.graph(), *step), members.size());
    if (fresh) {
      members.emplace_back();
      StepGroup group{node.op, node.name, step->kernel, step->spec};
      ForEachNode(graph.graph(), *step, [&](const NodeView& view) {
        group.bytes += LeastBytes(view, cache);
        group.ops += Operations(view, cache);
      });
      times.groups.push_back(std::move(group));
    }
    members[at->second].push_back(step.get());
    ++times.groups[at->second].count;
  }
  const Stopwatch watch(device, stream, repeat);
  const Result<double> pass = watch.Time([&] { return graph.Run(stream); });
  if (!pass) return Fail(pass.error());
  times.pass_us = *pass;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Result<double> us = TimeGroup(members[i], device, stream, watch);
    if (!us) return Fail(us.error());
    times.groups[i].us = *us;
  }
  return times;
}

}  // namespace tilewright
