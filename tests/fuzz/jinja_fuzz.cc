// Any text as a chat template, rendered for a conversation. A small budget keeps each run short; whatever happens, the
// result is a text or one line.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/template.h"

namespace {

using tilewright::jinja::Heap;
using tilewright::jinja::Template;
using tilewright::jinja::Value;

Value Message(Heap& heap, const char* role, Value content) {
  return heap.MakeDict({{Value::Of("role"), Value::Of(role)}, {Value::Of("content"), content}});
}

void Require(bool condition) {
  if (!condition) std::abort();  // what libFuzzer reports
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string source(reinterpret_cast<const char*>(data), size);
  const auto parsed = Template::Parse(source);
  if (!parsed) {
    Require(parsed.error().message.find('\n') == std::string::npos);
    return 0;
  }
  Heap heap(std::uint64_t{1} << 22);
  const Value part = heap.MakeDict({{Value::Of("type"), Value::Of("text")},
                                    {Value::Of("text"), Value::Of("\xe2\x82\xac \xff")}});
  const Value messages =
      heap.MakeSequence({Message(heap, "system", Value::Of(" Be kind. ")),
                         Message(heap, "user", Value::Of(source.substr(0, 40))),
                         Message(heap, "assistant", heap.MakeSequence({part, part})),
                         Message(heap, "user", Value::None())});
  const auto rendered = parsed->Render(heap,
                                       {{"messages", messages},
                                        {"add_generation_prompt", Value(true)},
                                        {"tools", Value::None()},
                                        {"bos_token", Value::Of("<s>")},
                                        {"n", Value(std::int64_t{7})},
                                        {"x", Value(0.5)}},
                                       std::tm{});
  if (rendered) {
    Require(rendered->size() <= std::size_t{1} << 22);
  } else {
    Require(!rendered.error().message.empty());
    Require(rendered.error().message.find('\n') == std::string::npos);
  }
  return 0;
}
