#include "decode/token_schedule.h"

#include <algorithm>
#include <limits>
#include <map>

#include "artifact/spec_checks.h"
#include "core/text.h"
#include "decode/families.h"
#include "tilewright/cuda/attention_params.h"

namespace tilewright::decode {
namespace {

using tw::TokenStep;

constexpr int kMostHeads = 8;  // query heads of a key and value head
constexpr std::size_t kBufferGrain = 64;

std::size_t Rounded(std::size_t bytes, std::size_t grain) {
  return (bytes + grain - 1) / grain * grain;
}

template <class F>
void ForEachMatrix(const TokenModel& model, F&& f) {
  for (const Layer& layer : model.layers) {
    f("qkv", layer.qkv);
    f("o", layer.o);
    f("gate and up", layer.gate_up);
    f("down", layer.down);
  }
  f("output", model.output);
}

std::optional<Rejection> CheckMatrix(std::string_view name, const Matrix& matrix,
                                     const Matrix& first) {
  const TypeInfo& type = GetTypeInfo(matrix.type);
  if (matrix.n != first.n || matrix.k != first.k) {
    return Reject(Reason::kShape,
                  Format("{}: {} x {} in one layer, {} x {} in another", name, first.n, first.k,
                         matrix.n, matrix.k),
                  "layers of one shape");
  }
  // A unit is whole chunks of 64 values, whatever the format.
  if (matrix.n % tw::kTokenRows != 0 || matrix.k % 64 != 0 || matrix.k % type.block_elements != 0 ||
      matrix.n > std::numeric_limits<int>::max() / 256 ||
      matrix.k > std::numeric_limits<int>::max() / 256) {
    return Reject(Reason::kShape, Format("{}: {} x {} of {}", name, matrix.n, matrix.k, type.name),
                  "pairs of rows of whole blocks and of whole 64 values");
  }
  // Copies are of aligned 16 bytes; none may read behind the matrix.
  const auto bytes = BytesOf(matrix.type, matrix.k) * static_cast<std::size_t>(matrix.n);
  if (reinterpret_cast<std::uintptr_t>(matrix.data) % 16 != 0 || bytes % 16 != 0) {
    return Reject(Reason::kAlignment, Format("{} of {} bytes at {}", name, bytes, matrix.data),
                  "multiples of 16");
  }
  return std::nullopt;
}

std::optional<Rejection> CheckMatrices(const TokenModel& model) {
  std::map<std::string_view, Matrix> first;
  std::optional<Rejection> no;
  ForEachMatrix(model, [&](std::string_view name, const Matrix& matrix) {
    const Matrix& like = first.emplace(name, matrix).first->second;
    if (!no) no = CheckMatrix(name, matrix, like);
  });
  return no;
}

/// What a step leaves is what the next one reads, row by row.
std::optional<Rejection> CheckSizes(const TokenModel& model) {
  const Layer& layer = model.layers.front();
  const std::int64_t hidden = layer.qkv.k;
  const std::int64_t heads = model.attention.attention.heads;
  const std::int64_t kv_heads = model.attention.attention.kv_heads;
  const std::int64_t attended = heads * model.head_dim;
  const bool fit = layer.qkv.n == attended + 2 * kv_heads * model.head_dim &&
                   layer.o.k == attended && layer.o.n == hidden && layer.gate_up.k == hidden &&
                   layer.gate_up.n == 2 * layer.down.k && layer.down.n == hidden &&
                   model.output.k == hidden && layer.gate_up.n % (2 * cuda::kGemvGatedBlock) == 0;
  if (!fit) {
    return Reject(Reason::kShape,
                  Format("qkv {} x {}, o {} x {}, gate and up {} x {}, down {} x {}, output of {}",
                         layer.qkv.n, layer.qkv.k, layer.o.n, layer.o.k, layer.gate_up.n,
                         layer.gate_up.k, layer.down.n, layer.down.k, model.output.k),
                  "each as wide as the one in front of it");
  }
  if (heads / kv_heads > kMostHeads) {
    return Reject(Reason::kShape, Format("{} heads over {}", heads, kv_heads),
                  Format("at most {} for each key and value head", kMostHeads));
  }
  return std::nullopt;
}

/// Appends the steps of a model; tags count the turns of the buffers, one a layer.
class Program {
 public:
  Program(const TokenModel& model, const KernelSpec& spec) : model_(model), spec_(spec) {}

  std::vector<TokenStep> Take() {
    int turn = 0;
    for (const Layer& layer : model_.layers) {
      const bool first = turn == 0;
      const int before = turn++;
      Product(layer.qkv, layer.attention_norm, first ? tw::kTokenPlainInput : 0,
              {tw::kTokenHidden, tw::kTokenQkv}, before, turn);
      TokenStep attention{};
      attention.a = Address(layer.k_cache), attention.b = Address(layer.v_cache);
      attention.flags = tw::kTokenAttends;
      attention.input = tw::kTokenQkv, attention.output = tw::kTokenAttended;
      Add(attention, turn, turn);
      Product(layer.o, nullptr, tw::kTokenAdds | (first ? tw::kTokenPlainAddend : 0),
              {tw::kTokenAttended, tw::kTokenMiddle, tw::kTokenHidden}, turn, turn);
      Product(layer.gate_up, layer.ffn_norm, tw::kTokenGates, {tw::kTokenMiddle, tw::kTokenGated},
              turn, turn);
      Product(layer.down, nullptr, tw::kTokenAdds,
              {tw::kTokenGated, tw::kTokenHidden, tw::kTokenMiddle}, turn, turn);
    }
    Product(model_.output, model_.output_norm, tw::kTokenLogits, {tw::kTokenHidden}, turn, turn);
    return std::move(steps_);
  }

 private:
  struct Ends {
    tw::TokenBuffer input, output = tw::kTokenHidden, addend = tw::kTokenHidden;
  };
  static unsigned long long Address(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }
  void Product(const Matrix& matrix, const void* norm, int flags, const Ends& ends, int tag_in,
               int tag_out) {
    TokenStep step{};
    step.a = Address(matrix.data), step.b = Address(norm);
    step.n = static_cast<int>(matrix.n), step.k = static_cast<int>(matrix.k);
    if (matrix.type != spec_.type_b) flags |= tw::kTokenOther;
    step.flags = static_cast<unsigned char>(flags);
    step.input = ends.input, step.output = ends.output, step.addend = ends.addend;
    Add(step, tag_in, tag_out);
  }
  void Add(TokenStep step, int tag_in, int tag_out) {
    step.tag_in = static_cast<unsigned short>(tag_in);
    step.tag_out = static_cast<unsigned short>(tag_out);
    steps_.push_back(step);
  }

  const TokenModel& model_;
  const KernelSpec& spec_;
  std::vector<TokenStep> steps_;
};

std::array<std::size_t, tw::kTokenBuffers> BufferSizes(const TokenModel& model) {
  const Layer& layer = model.layers.front();
  std::array<std::size_t, tw::kTokenBuffers> sizes{};
  sizes[tw::kTokenHidden] = sizes[tw::kTokenMiddle] = static_cast<std::size_t>(layer.o.n);
  sizes[tw::kTokenQkv] = static_cast<std::size_t>(layer.qkv.n);
  sizes[tw::kTokenAttended] = static_cast<std::size_t>(layer.o.k);
  sizes[tw::kTokenGated] = static_cast<std::size_t>(layer.down.k);
  return sizes;
}

/// CTAs that all have rows of every product: a buffer is written again on the word of all of them.
std::uint32_t CtasOf(const TokenModel& model, int sms) {
  std::int64_t ctas = sms;
  ForEachMatrix(model, [&](std::string_view, const Matrix& matrix) {
    ctas = std::min<std::int64_t>(ctas, tw::TokenUnits(static_cast<int>(matrix.n)));
  });
  // Gates are pairs of rows too, but a unit of them is one column.
  return static_cast<std::uint32_t>(std::max<std::int64_t>(ctas, 1));
}

/// Places in shared memory, behind the rings.
void PlaceShared(const TokenModel& model, const KernelSpec& spec, TokenSchedule& schedule) {
  std::int64_t longest = 0;
  ForEachMatrix(model,
                [&](std::string_view, const Matrix& m) { longest = std::max(longest, m.k); });
  const int head_dim = spec.params[0];
  const std::size_t attention =
      cuda::AttentionDecodeSmem(head_dim, spec.params[1], spec.params[3], 0) +
      cuda::AttentionNewRowSmem(head_dim) + static_cast<std::size_t>(tw::TokenMergeBytes(head_dim));
  const auto x = static_cast<std::size_t>(tw::TokenXBytes(static_cast<int>(longest)));
  std::size_t at = static_cast<std::size_t>(DecodeTokenRingBytes(spec));
  const auto place = [&at](int& where, std::size_t bytes, std::size_t grain) {
    at = Rounded(at, grain);
    where = static_cast<int>(at);
    at += bytes;
  };
  place(schedule.work_at, std::max(attention, x), 256);
  place(schedule.landed_at, static_cast<std::size_t>(16 * spec.warps * spec.stages + 16), 16);
  place(schedule.steps_at, schedule.steps.size() * sizeof(TokenStep), 16);
  schedule.smem_bytes = static_cast<std::uint32_t>(at);
}

}  // namespace

tl::expected<Formats, Rejection> FormatsOf(const TokenModel& model) {
  std::map<DataType, int> counts;
  ForEachMatrix(model, [&](std::string_view, const Matrix& matrix) { ++counts[matrix.type]; });
  if (counts.size() > 2) {
    std::string names;
    for (const auto& [type, count] : counts)
      names += Format("{}{}", names.empty() ? "" : ", ", DataTypeName(type));
    return tl::unexpected(
        *Reject(Reason::kType, Format("weights of {}", names), "two formats at most"));
  }
  std::pair<DataType, int> most = *counts.begin();
  DataType other = DataType::kNone;
  for (const auto& entry : counts)
    if (entry.second > most.second) most = entry;
  for (const auto& entry : counts)
    if (entry.first != most.first) other = entry.first;
  return Formats{most.first, other};
}

ScheduleResult MakeSchedule(const TokenModel& model, const KernelSpec& spec, int sms) {
  if (model.layers.empty() || sms < 1) {
    return tl::unexpected(
        *Reject(Reason::kShape, Format("{} layers on {} multiprocessors", model.layers.size(), sms),
                "one or more of each"));
  }
  const auto is_of = [&](DataType type) { return type == spec.type_b || type == spec.type_c; };
  std::optional<Rejection> no;
  ForEachMatrix(model, [&](std::string_view name, const Matrix& matrix) {
    if (no || is_of(matrix.type)) return;
    no = Reject(Reason::kType, Format("{} of {}", name, DataTypeName(matrix.type)),
                Format("{} or {}", DataTypeName(spec.type_b), DataTypeName(spec.type_c)));
  });
  if (!no) no = CheckMatrices(model);
  if (!no) no = CheckSizes(model);
  if (!no && model.head_dim != spec.params[0]) {
    no = Reject(Reason::kShape, Format("head_dim = {}", model.head_dim),
                Format("{}", spec.params[0]));
  }
  if (no) return tl::unexpected(*std::move(no));

  TokenSchedule schedule;
  schedule.steps = Program(model, spec).Take();
  schedule.turns = static_cast<int>(model.layers.size());
  schedule.ctas = CtasOf(model, sms);
  schedule.parts = spec.params[2];
  const auto sizes = BufferSizes(model);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    schedule.offsets[i] = static_cast<int>(schedule.words);
    schedule.words += Rounded(sizes[i], kBufferGrain);
  }
  const std::size_t group = static_cast<std::size_t>(model.attention.attention.heads /
                                                     model.attention.attention.kv_heads);
  // Four sums, a maximum and the sum of the weights of each four elements of a head.
  schedule.partials = static_cast<std::size_t>(model.attention.attention.kv_heads) *
                      static_cast<std::size_t>(spec.params[2]) * group *
                      static_cast<std::size_t>(model.head_dim / 4) * 6;
  PlaceShared(model, spec, schedule);
  if (schedule.smem_bytes > MaxSmemBytes(spec.arch)) {
    return tl::unexpected(
        *Reject(Reason::kWorkspace,
                Format("{} bytes of shared memory for {} steps", schedule.smem_bytes,
                       schedule.steps.size()),
                Format("at most {} on {}", MaxSmemBytes(spec.arch), spec.arch.ToString())));
  }
  return schedule;
}

tw::TokenParams ParamsOf(const TokenModel& model, const TokenSchedule& schedule,
                         const TokenMemory& memory, std::uint64_t wait_ns) {
  tw::TokenParams p{};
  p.steps = memory.steps;
  p.embedded = model.embedded;
  p.logits = model.logits;
  p.words = memory.words;
  p.partials = memory.partials;
  p.state = memory.state;
  p.alarm = memory.alarm;
  p.wait_ns = wait_ns;
  p.step_count = static_cast<int>(schedule.steps.size());
  p.turns = schedule.turns;
  std::copy(schedule.offsets.begin(), schedule.offsets.end(), p.offsets);
  p.work_at = schedule.work_at, p.landed_at = schedule.landed_at;
  p.steps_at = schedule.steps_at;
  p.epsilon = model.epsilon;
  p.attention = model.attention;
  // Queries, keys and values lie one after the other in the row of their product.
  const int head = static_cast<int>(model.head_dim);
  const unsigned int* row = memory.words + schedule.offsets[tw::kTokenQkv];
  cuda::AttentionParams& a = p.attention.attention;
  a.q = row;
  a.q_head = p.attention.k_head = p.attention.v_head = head;
  p.attention.k = row + a.heads * head;
  p.attention.v = row + (a.heads + a.kv_heads) * head;
  a.rows = 1;
  a.splits = schedule.parts;
  return p;
}

}  // namespace tilewright::decode
