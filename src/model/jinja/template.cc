#include "model/jinja/template.h"

#include "core/text.h"
#include "model/jinja/evaluator.h"
#include "model/jinja/lexer.h"
#include "model/jinja/parser.h"

namespace tilewright::jinja {

Result<Template> Template::Parse(std::string_view source) {
  if (source.size() > kLongestSource) {
    return Fail(ErrorCode::kUnsupported,
                Format("the template has {} bytes, more than {}", source.size(), kLongestSource));
  }
  Result<std::vector<Token>> tokens = Tokenize(source);
  if (!tokens) return Fail(tokens.error());
  Result<Block> block = ParseTemplate(std::move(*tokens));
  if (!block) return Fail(block.error());
  return Template(std::move(*block));
}

Result<std::string> Template::Render(
    Heap& heap, const std::vector<std::pair<std::string_view, Value>>& variables,
    const std::tm& now) const {
  // Names that the template sets do not replace those that it was given: macros see both.
  Scope* given = heap.MakeScope(nullptr);
  for (const auto& [name, value] : variables) given->Set(name, value);
  std::string out;
  Evaluator evaluator(heap, now);
  evaluator.Run(*block_, heap.MakeScope(given), out);
  if (heap.ok()) return out;
  const Error& error = *heap.error();
  if (error.code == ErrorCode::kInvalidArgument) return Fail(error);
  return Fail(error.code, Format("line {}: {}", evaluator.error_line(), error.message));
}

}  // namespace tilewright::jinja
