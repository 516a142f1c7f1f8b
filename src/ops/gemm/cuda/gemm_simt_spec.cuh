#pragma once

// The fields of a spec as the kernels of gemm_simt take them. After "spec.cuh".

namespace tw {

struct SimtSpec {
  static constexpr Type kTypeA = spec::kTypeA;
  static constexpr Type kTypeB = spec::kTypeB;
  static constexpr Type kTypeC = spec::kTypeC;
  static constexpr Type kTypeD = spec::kTypeD;
  static constexpr int kTileM = spec::kTileM;
  static constexpr int kTileN = spec::kTileN;
  static constexpr int kTileK = spec::kTileK;
  static constexpr int kWarps = spec::kWarps;
  static constexpr int kRows = spec::kParam0;  // of the tile's rows, a thread's
  static constexpr int kCols = spec::kParam1;  // of the tile's columns, a thread's
};

}  // namespace tw
