#pragma once

#include "ops/attention/attention.h"
#include "ops/copy/copy.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/norm/norm.h"
#include "ops/rope/rope.h"
#include "tilewright/gemm.h"

namespace tilewright {

/// Every kernel of the CPU device, by operation. Filled in once by src/api, then read-only and
/// shared.
struct CpuKernels {
  Registry gemm;
  NormRegistry norm;
  RopeRegistry rope;
  ElementwiseRegistry elementwise;
  CopyRegistry copy;
  KvScatterRegistry kv_scatter;
  EmbeddingRegistry embedding;
  AttentionRegistry attention;
};

}  // namespace tilewright
