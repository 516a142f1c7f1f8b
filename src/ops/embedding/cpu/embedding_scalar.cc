#include "core/convert_row.h"
#include "ops/embedding/cpu/embedding_cpu.h"
#include "ops/embedding/cpu/embedding_row.h"
#include "tilewright/device.h"

namespace tilewright {

const EmbeddingImpl kEmbeddingScalar{.isa = "scalar",
                                     .tu = TILEWRIGHT_TU,
                                     .features = 0,
                                     .ns_per_element = 0.8,
                                     .decoders = kDecoders,
                                     .rows = kRowConversions};

}  // namespace tilewright
