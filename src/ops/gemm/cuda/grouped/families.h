#pragma once

#include <span>

#include "tilewright/kernel_family.h"

/// Families of products of rows in groups, each group with a matrix of its own: gemv_int8_grouped,
/// gemv_q_grouped, gemv_stream_grouped, gemm_q_grouped and gemm_simt_grouped. Each has some of the specs of the family
/// whose name it has in front. README.md names them.

namespace tilewright {

std::span<const KernelFamily> GroupedFamilies();

/// Adds them all. kInvalidArgument if a name is taken.
Status AddGroupedFamilies(KernelFamilies& families);

/// The family that a family here is a grouped form of; null for any other name.
const KernelFamily* DenseFamilyOf(const FamilyName& grouped);

/// `spec`, of a family here, as one of its dense family.
KernelSpec DenseSpecOf(const KernelSpec& spec);

/// Whether its kernels have a row of CTAs for each row of y, or else tiles of rows.
bool GroupsByRow(const KernelSpec& spec);

}  // namespace tilewright
