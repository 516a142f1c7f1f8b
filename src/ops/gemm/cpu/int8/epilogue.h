#pragma once

/// Arithmetic of epilogues, over the kernel file's vector type `Vec`.

namespace tilewright::gemm_int8 {
namespace {

using F = Vec::F;

/// e^x for x in [-87, 88]: Cody and Waite reduction, degree 6 polynomial; relative error below
/// 2e-7.
inline F Exp(F x) {
  const F n = Vec::Round(Vec::Mul(x, Vec::Set(1.44269504088896341f)));
  F r = Vec::Fma(n, Vec::Set(-0.693359375f), x);
  r = Vec::Fma(n, Vec::Set(2.12194440e-4f), r);
  F p = Vec::Set(1.0f / 720);
  p = Vec::Fma(p, r, Vec::Set(1.0f / 120));
  p = Vec::Fma(p, r, Vec::Set(1.0f / 24));
  p = Vec::Fma(p, r, Vec::Set(1.0f / 6));
  p = Vec::Fma(p, r, Vec::Set(0.5f));
  p = Vec::Fma(p, r, Vec::Set(1.0f));
  p = Vec::Fma(p, r, Vec::Set(1.0f));
  return Vec::Mul(p, Vec::PowerOfTwo(n));
}

/// x / (1 + e^-x). NaN stays NaN: the numerator carries it through the clamp.
inline F Silu(F x) {
  const F t = Vec::Clamp(Vec::Sub(Vec::ZeroF(), x), -87.0f, 88.0f);
  return Vec::Div(x, Vec::Add(Exp(t), Vec::Set(1.0f)));
}

}  // namespace
}  // namespace tilewright::gemm_int8
