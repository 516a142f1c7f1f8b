#pragma once

// What a launch of a kernel of the family route consists of. The kernel includes this very file, so
// it is plain C++ without any other header, seen by the host compiler and by NVRTC.
//
// A launch has one parameter, the block by value; as many threads as ArtifactData::launch of the
// compiled kernel says, no dynamic shared memory; and (RouteChunks, 1, 1) CTAs.
//
// Fields of a KernelSpec that the family names itself:
//
//   param0  the most experts: 128 or 1,024
//   param1, param2, param3  0

namespace tilewright::cuda {

/// Which experts rows go to, and the order of the pairs of row and expert: tilewright/route.h
/// states both. All pointers are of device memory, each aligned to its element; strides in elements.
struct RouteParams {
  const void* logits;  ///< [rows][experts], type_a
  void* weights;       ///< [rows][used], type_a
  int* places;         ///< [rows][used], adjacent
  int* offsets;        ///< [experts + 1]
  int* sources;        ///< [rows * used]
  int* experts_of;     ///< [rows * used], or null
  /// [RouteChunks][experts] pairs of each expert, then [rows * used] the number of a pair among those
  /// of its expert in its chunk; not used where there is one chunk.
  int* partials;
  unsigned int* arrival;  ///< zero; every launch leaves it zero. As partials
  long long logits_stride, weights_stride;
  int rows;       ///< 1 or more
  int experts;    ///< at most param0
  int used;       ///< 1 to kRouteMostUsed, at most experts
  int normalise;  ///< weights are shares of the chosen experts, not of all
  float scale;
};

/// Rows of a CTA.
inline constexpr int kRouteChunkRows = 32;
inline constexpr int kRouteMostUsed = 32;

/// CTAs of a launch.
constexpr int RouteChunks(int rows) { return (rows - 1) / kRouteChunkRows + 1; }

/// Bytes of RouteParams::partials and arrival; 0 where they are not used.
constexpr unsigned long long RoutePartialBytes(int rows, int experts, int used) {
  const auto chunks = static_cast<unsigned long long>(RouteChunks(rows));
  return chunks == 1 ? 0
                     : 4 * (chunks * static_cast<unsigned>(experts) +
                            static_cast<unsigned long long>(rows) * static_cast<unsigned>(used));
}
constexpr unsigned long long RouteArrivalBytes(int rows) { return RouteChunks(rows) == 1 ? 0 : 4; }

}  // namespace tilewright::cuda
