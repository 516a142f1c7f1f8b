#include "ops/embedding/cpu/embedding_cpu.h"
#include "ops/embedding/cpu/embedding_row.h"
#include "tilewright/device.h"

namespace tilewright {

const EmbeddingImpl kEmbeddingScalar{.isa = "scalar",
                                     .tu = TILEWRIGHT_TU,
                                     .features = 0,
                                     .ns_per_element = 0.8,
                                     .f32 = &DecodeF32,
                                     .f16 = &DecodeF16,
                                     .bf16 = &DecodeBF16,
                                     .q4_0 = &DecodeQ4_0,
                                     .q4_1 = &DecodeQ4_1,
                                     .q8_0 = &DecodeQ8_0,
                                     .q6_k = &DecodeQ6K};

}  // namespace tilewright
