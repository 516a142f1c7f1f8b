#pragma once

#include <cstdint>

#include "common.h"

namespace tilewright::cli {

/// The products of the layers of a pass, one after another.
struct ProductChain {
  int products = 0;  ///< of all layers
  double us = 0;     ///< of the whole chain, median
  double bytes = 0;  ///< least that they read and write
};

/// Times the products of the layers of a pass over `rows` rows, one of each sequence, with nothing
/// between them: those of experts and the output projection left out, on activations that are
/// random. No products: of a model that has none of that kind. What the chain takes beyond its
/// products alone is what lies between kernels. Errors: those of preparing and running it.
Result<ProductChain> TimeProducts(const LoadedModel& loaded, std::int32_t rows, int repeat);

}  // namespace tilewright::cli
