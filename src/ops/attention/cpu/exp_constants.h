#pragma once

namespace tilewright {

// exp(x) = 2^n * exp(r), n = round(x / ln 2), r = x - n ln 2 in two parts (Cody and Waite), exp(r)
// by a polynomial of degree 6 (Taylor coefficients suffice: |r| <= 0.347, error below 1.5 ulp
// together with the reduction). Below kExpLow the result is 0.
constexpr float kExpLow = -87.0f;
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2High = 0.693145751953125f;
constexpr float kLn2Low = 1.42860682030941723e-6f;
constexpr float kExpC2 = 0.5f, kExpC3 = 1.0f / 6, kExpC4 = 1.0f / 24, kExpC5 = 1.0f / 120,
                kExpC6 = 1.0f / 720;

}  // namespace tilewright
