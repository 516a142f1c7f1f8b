#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/artifact.h"
#include "tilewright/bundle.h"
#include "tilewright/cache_mode.h"
#include "tilewright/compiler.h"
#include "tilewright/kernel_family.h"
#include "tilewright/kernel_spec.h"

namespace tilewright {

/// Which layer answered, in the order they are asked.
enum class ArtifactLayer : std::uint8_t { kMemory, kBundle, kUser, kSite, kShared, kCompiled };
std::string_view ArtifactLayerName(ArtifactLayer layer);

/// Why a layer did not answer.
enum class MissReason : std::uint8_t {
  kAbsent,
  kCorrupt,       ///< did not parse or failed its digest; quarantined where the layer is ours
  kIncompatible,  ///< of a newer format, another launch ABI, a driver too old: the field is logged
  kNegative,      ///< the compiler refused this very request before
  kIgnored,       ///< the mode says not to look, or there is no compiler to look by
};
std::string_view MissReasonName(MissReason reason);

/// A prepared kernel: a pointer. Copy it, keep it at the call site; valid while its store lives.
class KernelHandle {
 public:
  KernelHandle() = default;
  explicit operator bool() const { return data_ != nullptr; }
  const ArtifactData& operator*() const { return *data_; }
  const ArtifactData* operator->() const { return data_; }
  bool operator==(const KernelHandle&) const = default;

 private:
  friend class ArtifactStore;
  explicit KernelHandle(const ArtifactData* data) : data_(data) {}
  const ArtifactData* data_ = nullptr;
};

/// Progress of CompileAll and Verify.
struct CompileProgress {
  std::size_t done = 0, total = 0;
  std::size_t compiled = 0;  ///< of `done`: by this process
  KernelSpec last;
};

/// Both functions are called from the thread that made the call, and must not throw. `cancelled`
/// must not ask the same store for a kernel that is not there yet: Compile would wait for itself,
/// and answers kInvalidArgument.
struct CompileControl {
  CancelFn cancelled;  ///< asked about every 50 ms; true: kCancelled
  std::function<void(const CompileProgress&)> progress;
};

/// Numbers since the store was created (persistent, over all processes) or since this process
/// opened it.
struct ArtifactCounters {
  /// By ArtifactLayer (without kCompiled). What Find finds is not counted: it takes nanoseconds.
  std::uint64_t hits[5] = {};
  std::uint64_t misses[6][5] = {};    ///< by ArtifactLayer, MissReason
  std::uint64_t requests_missed = 0;  ///< requests no layer served
  std::uint64_t compiles = 0;
  std::uint64_t compile_failures = 0;
  std::uint64_t compile_us = 0;
  std::uint64_t saved_us = 0;    ///< stored compile time less load time, over hits beyond memory
  std::uint64_t lock_waits = 0;  ///< waits for another process that was compiling the same
  std::uint64_t lock_wait_us = 0;
  std::uint64_t lock_timeouts = 0;
  std::uint64_t publishes = 0;
  std::uint64_t publishes_lost = 0;  ///< another process was first
  std::uint64_t evictions = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t verify_mismatches = 0;
};

struct ArtifactStoreOptions {
  /// Folder of the user's store; "": CacheDir() + "/artifacts". Created 0700.
  std::string root;
  /// Files, newest first: asked in this order. Each must open: one that was named and is not there,
  /// damaged at its head or not signed as demanded is an error of Open.
  std::vector<std::string> bundles;
  /// Stores of somebody else, read only. Naming one is trusting its owner, and nobody else: one
  /// that others may write, or could replace since they may write a folder above it, is not used,
  /// with a warning; nothing of it is served or copied.
  std::vector<std::string> site_dirs;
  /// Site folders, and folders above them, may also be writable by their group.
  bool site_by_group = false;
  std::string shared_dir;  ///< a store on another mount, read and written; "": none
  /// shared_dir is believed although it belongs to another user or its group may write it. Whoever
  /// may write it then decides what this process runs on the GPU: digests find damage, not malice.
  /// It must be there and not be writable by everybody; entries are added to it, never removed.
  bool shared_by_group = false;
  CacheMode mode = CacheMode::kNormal;
  /// Serve no artifact without PTX or source (bundles may leave them out), from whatever layer:
  /// what the compiler makes instead also replaces it in the folders. For making bundles.
  bool whole_artifacts = false;
  /// Caps of the user's folder, on entries and on what was set aside as damaged; 0: none.
  std::uint64_t max_bytes = std::uint64_t{2} << 30;
  std::uint64_t max_entries = 20000;
  std::int64_t negative_ttl_s = 24 * 3600;  ///< of refusals of the compiler; 0: none is kept
  std::int64_t lock_wait_ms = 120000;       ///< for another process that compiles the same kernel
  int compile_threads = 0;  ///< 0: the smaller of DefaultThreads() and what memory allows
  std::uint64_t compile_memory_bytes = std::uint64_t{512} << 20;  ///< budgeted for one compilation
  NvrtcSearch nvrtc;
  /// Instead of NVRTC; for other compilers and tests.
  std::shared_ptr<const KernelCompiler> compiler;
  Bundle::OpenOptions bundle_options;
  /// What artifacts must run on; default: not compared. launch_abi comes from the families.
  BundleNeeds device;
  std::string missing_list;  ///< where strict mode notes what is missing; "": root + "/missing.txt"
};

struct StoreEnvironment;  // of tests: src/artifact/store/store_impl.h

/// Compiled kernels, each compiled at most once: asked for by spec, found in memory, in bundles, in
/// the user's folder, in site folders, in a shared folder, or compiled. All functions may be called
/// from any number of threads and processes at the same time. A layer that fails (unreadable, full,
/// not to be trusted) is skipped; this is reported once in warnings(), and is never an error.
///
/// Nothing is loaded before it is needed: a store whose bundles hold everything never looks for a
/// compiler.
///
/// The child of a fork may go on using it, whatever other threads were doing: what they had under
/// way is not finished there. (Whether NVRTC itself compiles in such a child is NVRTC's affair.)
class ArtifactStore {
 public:
  /// Keeps its own copy of `families`. Relative paths are of the working directory of this moment.
  /// Errors: kInvalidArgument for families without sources, an invalid mode, or a bundle or list
  /// that was named and cannot be used at all.
  static Result<std::unique_ptr<ArtifactStore>> Open(const KernelFamilies& families,
                                                     ArtifactStoreOptions options);
  /// Waits for compilations of other threads that were started through this object.
  ~ArtifactStore();
  ArtifactStore(const ArtifactStore&) = delete;
  ArtifactStore& operator=(const ArtifactStore&) = delete;

  /// The handle if this process has it already: one hash of the spec and one comparison, no
  /// allocation, no lock, under 100 ns. An empty handle otherwise. Safe on the launch path.
  KernelHandle Find(const KernelSpec& spec) const noexcept;

  /// The handle, from wherever it can be had; compiles as the last resort. One thread and one
  /// process compile a kernel while the others wait for it. Errors: kInvalidArgument (spec or
  /// options); kUnsupported with the compiler's words (remembered for negative_ttl_s), or where
  /// options.device could not run it; kNotFound in strict mode, naming the spec and the list;
  /// kUnavailable where there is no compiler, with the places looked at and what the bundles said;
  /// kCancelled; kCorrupt in verify mode where the recompiled bytes differ. A message is one line
  /// and starts with the spec's name.
  Result<KernelHandle> Compile(const KernelSpec& spec, const CompileControl& control = {});

  /// Compile for all, on compile_threads threads, in an order that lets several processes with the
  /// same list share the work. Goes on after a failure; the result has one element a spec.
  std::vector<Result<KernelHandle>> CompileAll(std::span<const KernelSpec> specs,
                                               const CompileControl& control = {});

  /// The artifact as bytes (an entry file), for storage or transport of the caller's own.
  Result<std::string> Serialize(KernelHandle handle) const;
  /// Adopts such bytes: checked as a file is, compared with the families of this store (source
  /// digests, launch ABI), kept in memory, found by Find and Compile from then on. kCorrupt;
  /// kUnsupported naming the field in which the artifact is not what this store would make.
  Result<KernelHandle> Deserialize(std::string_view bytes);

  const KernelFamilies& families() const;
  CacheMode mode() const;
  const std::string& root() const;
  /// The compiler's identity; loads it. kUnavailable as LoadNvrtc.
  Result<CompilerIdentity> Compiler() const;
  std::vector<std::string> warnings() const;

  ArtifactCounters process_counters() const;
  /// Over all processes since the store was created, and what this process counted where the folder
  /// may only be read; this process's alone where there is no folder.
  ArtifactCounters counters() const;

  struct EntryInfo {
    ArtifactLayer layer = ArtifactLayer::kUser;
    std::string place;  ///< file, or bundle
    ArtifactKey request, action;
    std::string spec;      ///< SpecName; "" where it cannot be read
    std::string compiler;  ///< CompilerIdentity::ToString
    std::uint64_t bytes = 0;
    std::int64_t last_used_unix_s = 0;  ///< 0 in bundles
    double compile_ms = 0;
    ResourceUsage resources;
    bool negative = false;  ///< a remembered failure; `trouble` has the compiler's first line
    std::string trouble;    ///< of an entry that cannot be read
  };
  /// Every entry of every layer but memory, read whole and checked, since it tells of each whether
  /// it is sound: about 0.2 ms for one of 60 KB. Nothing is stamped or moved away.
  std::vector<EntryInfo> List() const;
  /// The bytes of an entry that List returned, checked as when it is used (owner, mode, digests,
  /// its key), for Import elsewhere: of a bundle's entry EncodeArtifact of what it holds. kNotFound
  /// where it is gone by now; kCorrupt and kUnsupported as DecodeArtifact; kIo where it cannot be
  /// read; kInvalidArgument for a refusal, and for what is no entry of this store.
  Result<std::string> ReadEntry(const EntryInfo& entry) const;

  struct Totals {
    std::uint64_t entries = 0, bytes = 0;
    std::uint64_t negative = 0;
    std::uint64_t quarantined = 0;  ///< damaged files set aside; they count against the caps, too
  };
  /// Of the user's folder.
  Totals GetTotals() const;

  struct VerifyReport {
    std::uint64_t good = 0;
    std::vector<std::string> troubles;  ///< one line a damaged entry, which was quarantined
    std::uint64_t recompiled = 0;       ///< compiled again and compared
    std::uint64_t differ = 0;           ///< of these: other bytes; a line of `troubles` each
    /// Not compared: of other sources or another compiler, or in the format or key schema of
    /// another version, which shares the folder.
    std::uint64_t not_ours = 0;
    /// Would have been compiled again, but there was no compiler, no memory, ... (an error of
    /// Compile), of which `why_not` is the first. Not troubles: nothing is known against them.
    std::uint64_t not_recompiled = 0;
    std::string why_not;
    bool cancelled = false;  ///< before the end: the numbers are of what was looked at
  };
  /// Reads and checks every entry of the user's folder and the bundles; with `recompile` also
  /// compiles each again and compares bytes. Without a compiler every one is `not_recompiled`. On
  /// compile_threads threads, within compile_memory_bytes for each; lines of the report stand in
  /// the order of keys, files before bundles, whatever ended first.
  VerifyReport Verify(bool recompile, const CompileControl& control = {});

  struct GcReport {
    std::uint64_t removed_entries = 0, removed_bytes = 0;
    std::uint64_t removed_temporaries = 0, removed_negative = 0, removed_quarantined = 0;
    std::string note;  ///< what could not be looked at: entries of other compilers without one
  };
  /// Trims to the caps now, sweeps what dead processes left, drops expired refusals; with
  /// `unreachable` also entries of older sources or other compilers.
  GcReport Gc(bool dry_run, bool unreachable);

  struct MissExplanation {
    ArtifactKey request, action;  ///< action is zero where there is no compiler
    struct Layer {
      ArtifactLayer layer;
      std::string place;
      bool hit = false;
      MissReason reason = MissReason::kAbsent;
      std::string detail;
    };
    std::vector<Layer> layers;
    /// Of the stored entry that differs in the fewest fields; empty where there is none.
    std::string nearest;  ///< its SpecName and place
    std::vector<KeyDifference> differences;
  };
  /// Which layer would serve `spec`, and where none would, the nearest stored entry, field by
  /// field, for which all are read as List does. Compiles nothing and counts nothing.
  Result<MissExplanation> Explain(const KernelSpec& spec) const;

  /// Puts an artifact's bytes into the user's folder (cache import). True if it was not there.
  Result<bool> Import(std::string_view bytes);

 private:
  friend Result<std::unique_ptr<ArtifactStore>> OpenArtifactStore(const KernelFamilies& families,
                                                                  ArtifactStoreOptions options,
                                                                  const StoreEnvironment& env);
  struct Impl;
  explicit ArtifactStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Specs of a list file: one SpecName a line; # starts a comment, blank lines are skipped.
/// kInvalidArgument names the line. This is what strict mode's list holds.
Result<std::vector<KernelSpec>> ParseSpecList(std::string_view text, std::string_view file_name);

}  // namespace tilewright
