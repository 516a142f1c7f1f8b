#pragma once

// Where kernels write rows into a KV cache: a part of the parameter blocks of the families
// kv_scatter and rope. The kernels include this very file, so it is plain C++ without any other
// header, seen by the host compiler and by NVRTC.

namespace tilewright::cuda {

/// Row r of a launch goes to position positions[r] of the sequence in slot slots[r]. A row whose
/// position is below 0 (padding) or not below `context`, whose slot does not exist, or whose entry
/// of the page table names no page is left out: a kernel cannot refuse a launch. All pointers are
/// of device memory, all strides in elements.
///
/// Contiguous, without `pages`: [head_dim, kv_heads, context, slots]. Paged: [head_dim, kv_heads,
/// page_size, physical pages], and position p of slot s is row p % page_size of page
/// pages[s * pages_slot + p / page_size].
struct KvCacheRows {
  void* data;
  const int* positions;  ///< [rows]
  const int* slots;      ///< [rows]
  const int* pages;      ///< [slots][context / page_size], or null
  long long head;        ///< from head to head of a position
  long long position;    ///< from position to position of a page, or of a slot
  long long page;        ///< from page to page; without pages from slot to slot
  long long pages_slot;  ///< of the page table, from slot to slot
  int page_size;         ///< positions of a page; without pages 0
  int page_count;        ///< physical pages; without pages 0
  int context;           ///< positions that a sequence has room for
  int slot_count;
};

}  // namespace tilewright::cuda
