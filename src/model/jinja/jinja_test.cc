#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "model/jinja/template.h"

namespace tilewright::jinja {
namespace {

std::string Repeated(std::string_view part, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += part;
  return out;
}

Result<std::string> Render(std::string_view source, std::uint64_t budget = kBudget) {
  const Result<Template> parsed = Template::Parse(source);
  if (!parsed) return Fail(parsed.error());
  Heap heap(budget);
  return parsed->Render(heap, {{"text", Value::Of("text")}}, std::tm{});
}

void ExpectFails(std::string_view source, ErrorCode code, std::string_view part) {
  const Result<std::string> rendered = Render(source);
  ASSERT_FALSE(rendered) << std::string(source.substr(0, 100));
  EXPECT_EQ(rendered.error().code, code) << rendered.error().message;
  EXPECT_NE(rendered.error().message.find(part), std::string::npos) << rendered.error().message;
  EXPECT_LT(rendered.error().message.size(), 300u);
  EXPECT_EQ(rendered.error().message.find('\n'), std::string::npos);
}

TEST(JinjaTest, LoopsThatTakeTooLongAreStopped) {
  const std::string nested =
      Repeated("{% for x in range(100000) %}", 3) + "{{ x }}" + Repeated("{% endfor %}", 3);
  ExpectFails(nested, ErrorCode::kExhausted, "was stopped");
  ExpectFails("{% for x in range(100001) %}{% endfor %}", ErrorCode::kExhausted, "100000");
}

TEST(JinjaTest, TextsThatExplodeAreStopped) {
  ExpectFails("{{ 'x' * 10000000000 }}", ErrorCode::kExhausted, "was stopped");
  ExpectFails("{{ 'x' * 9223372036854775807 }}", ErrorCode::kExhausted, "was stopped");
  ExpectFails("{{ ['x'] * 9223372036854775807 }}", ErrorCode::kExhausted, "was stopped");
  ExpectFails("{{ ['x' * 1000] * 100000 }}{{ (['x' * 100000] * 100000) | tojson }}",
              ErrorCode::kExhausted, "was stopped");
  ExpectFails(
      "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}",
      ErrorCode::kExhausted, "was stopped");
  ExpectFails("{{ 'abc' | indent(9000000000) }}", ErrorCode::kExhausted, "was stopped");
  ExpectFails("{{ ('a' * 1000000) | replace('', 'b' * 1000000) }}", ErrorCode::kExhausted,
              "was stopped");
  ExpectFails("{{ ('a' * 100000) | join('b' * 100000) }}", ErrorCode::kExhausted, "was stopped");
}

TEST(JinjaTest, ValuesThatHoldThemselvesManyTimesAreStopped) {
  // Without a limit 60 rounds of this make 2^60 elements of one list that takes a kilobyte.
  const std::string doubling =
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% endfor %}";
  ExpectFails(doubling + "{{ ns.l }}", ErrorCode::kExhausted, "");
  ExpectFails(doubling + "{{ ns.l | tojson }}", ErrorCode::kExhausted, "");
  ExpectFails(doubling + "{{ ns.l == ns.l + [] }}", ErrorCode::kExhausted, "");
  ExpectFails(
      "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}"
      "{% endfor %}",
      ErrorCode::kExhausted, "nested deeper than 64");
}

TEST(JinjaTest, RecursionIsBounded) {
  ExpectFails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ErrorCode::kExhausted,
              "nested too deep");
  ExpectFails("{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}", ErrorCode::kExhausted,
              "nested too deep");
}

TEST(JinjaTest, DeepSyntaxIsRefused) {
  for (const std::string& source :
       {"{{ " + Repeated("(", 100000) + "1" + Repeated(")", 100000) + " }}",
        "{{ " + Repeated("[", 100000) + Repeated("]", 100000) + " }}",
        "{{ " + Repeated("{'a':", 50000) + "1" + Repeated("}", 50000) + " }}",
        "{{ 1" + Repeated(" + 1", 100000) + " }}", "{{ text" + Repeated(".a", 100000) + " }}",
        "{{ text" + Repeated("|trim", 100000) + " }}",
        "{{ text" + Repeated(" is defined", 50000) + " }}",
        "{{ text" + Repeated(" is sameas text is sameas", 20000) + " text }}",
        "{{ " + Repeated("not ", 100000) + "1 }}", "{{ " + Repeated("-", 100000) + "1 }}",
        "{{ " + Repeated("1 if 1 else ", 50000) + "1 }}",
        "{{ " + Repeated("1 if ", 50000) + "1" + Repeated(" else 1", 50000) + " }}",
        "{{ 1" + Repeated(" and 1", 100000) + " }}",
        Repeated("{% if 1 %}", 50000) + Repeated("{% endif %}", 50000),
        Repeated("{% for x in [] %}", 30000) + Repeated("{% endfor %}", 30000),
        "{% for " + Repeated("(", 100000) + "x" + Repeated(")", 100000) +
            " in [] %}{% endfor %}"}) {
    const Result<std::string> rendered = Render(source);
    ASSERT_FALSE(rendered) << source.substr(0, 40);
    EXPECT_LT(rendered.error().message.size(), 300u);
  }
}

TEST(JinjaTest, ManyBranchesAndStatementsAreNoDepth) {
  std::string source = "{% if false %}";
  for (int i = 0; i < 20000; ++i) source += "{% elif false %}";
  source += "{% else %}end{% endif %}" + Repeated("{{ text }}", 1000);
  EXPECT_EQ(Render(source).value().size(), 4003u);
}

TEST(JinjaTest, SourcesHaveALimit) {
  ExpectFails(std::string(kLongestSource + 1, 'x'), ErrorCode::kUnsupported, "1048576");
  EXPECT_EQ(Render(std::string(kLongestSource, 'x')).value().size(), kLongestSource);
}

TEST(JinjaTest, ManyNamesArePaidFor) {
  std::string source;
  for (int i = 0; i < 20000; ++i) source += "{% set v" + std::to_string(i) + " = 1 %}";
  source += "{% for i in range(100000) %}{{ v19999 }}{% endfor %}";
  ExpectFails(source, ErrorCode::kExhausted, "was stopped");
}

TEST(JinjaTest, MessagesNameTheLine) {
  ExpectFails("a\nb\n{{ missing.part }}", ErrorCode::kUnsupported, "line 3: 'missing'");
  ExpectFails("a\n\n{% if %}", ErrorCode::kCorrupt, "line 3: ");
  ExpectFails("\n{{ text | nonsense }}", ErrorCode::kUnsupported, "line 2: the filter 'nonsense'");
  ExpectFails("{{ raise_exception('no\nway') }}", ErrorCode::kInvalidArgument, "no\\x0away");
}

TEST(JinjaTest, WhatIsLeftOutIsNamed) {
  for (const std::string_view source :
       {"{% include 'x' %}", "{% extends 'x' %}", "{% call m() %}{% endcall %}",
        "{% for x in [] recursive %}{% endfor %}", "{{ f(*text) }}", "{{ 'ä' | upper }}",
        "{{ 99999999999999999999 }}", "{{ 9223372036854775807 + 1 }}", "{{ '\\N{DASH}' }}"}) {
    const Result<std::string> rendered = Render(source);
    ASSERT_FALSE(rendered) << source;
    EXPECT_NE(rendered.error().code, ErrorCode::kInvalidArgument) << source;
  }
}

TEST(JinjaTest, BytesThatAreNoTextPass) {
  Heap heap(kBudget);
  const Template source = Template::Parse(
                              "{{ t }}{{ t | trim }}{{ t[0] }}{{ t | length }}"
                              "{{ t.split() | length }}{{ [t] | string | length }}")
                              .value();
  for (const std::string& text : {std::string("\xff\xc3"), std::string("\xe2\x80"),
                                  std::string("\xf0\x9f\x98"), std::string("\0\x80", 2)}) {
    const Result<std::string> rendered = source.Render(heap, {{"t", Value::Of(text)}}, std::tm{});
    ASSERT_TRUE(rendered) << rendered.error().message;
    EXPECT_EQ(rendered->substr(0, text.size()), text);
  }
}

}  // namespace
}  // namespace tilewright::jinja
