#pragma once

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

#include "engine/problem_key.h"

namespace tilewright::test {

struct Anything {
  template <class T>
  constexpr operator T() const;  // NOLINT(google-explicit-constructor): stands for any member
};

/// Members of an aggregate of scalars.
template <class T, class... Given>
consteval int MemberCount() {
  if constexpr (requires { T{Given{}..., Anything{}}; }) {
    return MemberCount<T, Given..., Anything>();
  } else {
    return static_cast<int>(sizeof...(Given));
  }
}

/// Every member of the problem is a field of its key: another value gives another key, and the key
/// gives back the value.
template <class Op>
void ExpectEveryFieldInTheKey(const typename Op::Desc& desc) {
  using Desc = typename Op::Desc;
  int fields = 0;
  Desc walked = desc;
  ForEachField(walked, [&fields](std::string_view, auto&) { ++fields; });
  EXPECT_EQ(fields, MemberCount<Desc>()) << "a member that ForEachField leaves out";
  for (int changed = 0; changed < fields; ++changed) {
    Desc other = desc;
    int at = 0;
    std::string name;
    ForEachField(other, [&](std::string_view field, auto& value) {
      using T = std::remove_reference_t<decltype(value)>;
      if (at++ != changed) return;
      name = field;
      if constexpr (std::is_same_v<T, bool>) {
        value = !value;
      } else if constexpr (std::is_same_v<T, DataType>) {
        value = value == DataType::kBF16 ? DataType::kF32 : DataType::kBF16;
      } else if constexpr (std::is_enum_v<T>) {
        value = static_cast<T>(value == T{} ? 1 : 0);
      } else {
        value = static_cast<T>(value + 3);
      }
    });
    EXPECT_NE(KeyOf(other), KeyOf(desc)) << name;
    const Result<Desc> parsed = ParseFields<Desc>(KeyOf(other), Op::kName);
    ASSERT_TRUE(parsed) << name << ": " << parsed.error().message;
    EXPECT_EQ(*parsed, other) << name;
  }
}

}  // namespace tilewright::test
