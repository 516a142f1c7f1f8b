#include "core/convert_row.h"
#include "ops/embedding/cpu/embedding_cpu.h"
#include "ops/embedding/cpu/embedding_row.h"
#include "tilewright/device.h"

namespace tilewright {

const EmbeddingImpl kEmbeddingAvx512{.isa = "avx512",
                                     .tu = TILEWRIGHT_TU,
                                     .features = kFeatureAvx512,
                                     .ns_per_element = 0.10,
                                     .decoders = kDecoders,
                                     .rows = kRowConversions};

}  // namespace tilewright
