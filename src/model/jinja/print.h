#pragma once

#include <cstdint>
#include <string>

#include "model/jinja/heap.h"

namespace tilewright::jinja {

/// Appends str(value) of Python, at the heap's expense; with an error for what has no such form
/// here.
void AppendText(Heap& heap, const Value& value, std::string& out);
std::string ToText(Heap& heap, const Value& value);
/// Python's repr() of a float: the fewest digits that give it back.
void AppendDouble(double value, std::string& out);

struct JsonStyle {
  bool escapes_unicode = false;
  bool sorts_keys = false;
  int indent = -1;  ///< negative: all on one line
  std::string between_items = ", ";
  std::string after_key = ": ";
};
/// Appends json.dumps(value) of Python.
void AppendJson(Heap& heap, const Value& value, const JsonStyle& style, std::string& out);

}  // namespace tilewright::jinja
