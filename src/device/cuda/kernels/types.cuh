#pragma once

// Integers of fixed width and the names of element types, for code that sees no other header: NVRTC
// has none of the standard library's.

namespace tw {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8);

// As DataType of tilewright/types.h; spec.cuh names them.
enum class Type : u8 {
  kNone,
  kF32,
  kF16,
  kBF16,
  kF64,
  kF8E4M3,
  kI8,
  kI32,
  kI64,
  kU8,
  kU4,
  kQ4_0,
  kQ4_1,
  kQ8_0,
  kQ6_K,
  kQ4_K,
  kQ5_0,
  kQ5_K,
  kQ2_K,
  kQ3_K,
  kIQ4_NL,
  kIQ4_XS,
  kQ5_1,
  kMXFP4,
  kI8X32,
};

// As SpecEpilogue of tilewright/kernel_spec.h.
enum class Epilogue : u8 { kNone, kAdd, kScale, kSwiGlu };

}  // namespace tw
