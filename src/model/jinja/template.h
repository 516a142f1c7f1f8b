#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja/ast.h"
#include "model/jinja/heap.h"
#include "tilewright/result.h"

namespace tilewright::jinja {

/// Longer sources are refused.
inline constexpr std::size_t kLongestSource = std::size_t{1} << 20;

/// What a rendering may make, in bytes (see Heap), besides a share for its input.
inline constexpr std::uint64_t kBudget = std::uint64_t{256} << 20;

/// A template in the part of Jinja2 that chat templates use; README.md has the list. What it
/// renders is what Python's jinja2 does with trim_blocks, lstrip_blocks, and the functions that
/// templates of language models may call. Threads: any number at once.
class Template {
 public:
  /// Errors: kCorrupt, what no template may contain; kUnsupported, what this part lacks; each with
  /// the line.
  static Result<Template> Parse(std::string_view source);

  /// `variables` belong to `heap`, whose budget bounds time and memory. `now` is what
  /// `strftime_now` formats.
  ///
  /// Errors: kInvalidArgument, with the message with which the template refused (raise_exception);
  /// kExhausted, the budget is spent, or values or calls are nested too deep; kUnsupported, what
  /// Jinja would refuse too (an undefined value is used), or what this part lacks.
  Result<std::string> Render(Heap& heap,
                             const std::vector<std::pair<std::string_view, Value>>& variables,
                             const std::tm& now) const;

 private:
  explicit Template(Block block) : block_(std::make_shared<const Block>(std::move(block))) {}

  std::shared_ptr<const Block> block_;
};

}  // namespace tilewright::jinja
