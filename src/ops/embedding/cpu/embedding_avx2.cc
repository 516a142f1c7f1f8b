#include "core/convert_row.h"
#include "ops/embedding/cpu/embedding_cpu.h"
#include "ops/embedding/cpu/embedding_row.h"
#include "tilewright/device.h"

namespace tilewright {

const EmbeddingImpl kEmbeddingAvx2{.isa = "avx2",
                                   .tu = TILEWRIGHT_TU,
                                   .features = kFeatureAvx2,
                                   .ns_per_element = 0.15,
                                   .decoders = kDecoders,
                                   .rows = kRowConversions};

}  // namespace tilewright
