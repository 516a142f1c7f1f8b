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

/// The layers of the store, in the order they are searched.
enum class ArtifactLayer : std::uint8_t { kMemory, kBundle, kUser, kSite, kShared, kCompiled };
std::string_view ArtifactLayerName(ArtifactLayer layer);

/// Why a layer had no usable artifact.
enum class MissReason : std::uint8_t {
  kAbsent,
  kCorrupt,       ///< did not parse or failed its digest; quarantined if in the user's own folder
  kIncompatible,  ///< newer format, other launch ABI, driver too old ...: the field is logged
  kNegative,      ///< the compiler rejected this exact request before
  kIgnored,       ///< not searched: the mode forbids it, or the key needs a missing compiler
};
std::string_view MissReasonName(MissReason reason);

/// A prepared kernel: just a pointer. Copy it freely and keep it at the call site; it is valid
/// while its store lives.
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
  std::size_t compiled = 0;  ///< of `done`, those compiled by this process
  KernelSpec last;
};

/// Both functions are called on the calling thread and must not throw. `cancelled` must not ask the
/// same store for a kernel that it does not have yet: Compile would wait for itself, so it returns
/// kInvalidArgument instead.
struct CompileControl {
  CancelFn cancelled;  ///< polled about every 50 ms; true: kCancelled
  std::function<void(const CompileProgress&)> progress;
};

/// Counts since the store was created (persistent, over all processes) or since this process opened
/// it.
struct ArtifactCounters {
  /// By ArtifactLayer (without kCompiled). Hits of Find are not counted: they take nanoseconds.
  std::uint64_t hits[5] = {};
  std::uint64_t misses[6][5] = {};    ///< by ArtifactLayer, MissReason
  std::uint64_t requests_missed = 0;  ///< requests no layer served
  std::uint64_t compiles = 0;
  std::uint64_t compile_failures = 0;
  std::uint64_t compile_us = 0;
  std::uint64_t saved_us = 0;    ///< compile time minus load time, summed over hits outside memory
  std::uint64_t lock_waits = 0;  ///< waits for another process compiling the same kernel
  std::uint64_t lock_wait_us = 0;
  std::uint64_t lock_timeouts = 0;
  std::uint64_t publishes = 0;
  std::uint64_t publishes_lost = 0;  ///< another process was first
  std::uint64_t evictions = 0;
  std::uint64_t quarantined = 0;
  std::uint64_t verify_mismatches = 0;
};

struct ArtifactStoreOptions {
  /// Folder of the user's store; "": CacheDir() + "/artifacts". Created with mode 0700.
  std::string root;
  /// Bundle files, searched in this order, so list the newest first. Open fails if one of them is
  /// missing, has a damaged header or lacks a required signature.
  std::vector<std::string> bundles;
  /// Read-only stores owned by another user. Naming one means trusting its owner and nobody else: a
  /// store that others can write, or could replace because they can write a folder above it, is
  /// skipped with a warning; nothing in it is served or copied.
  std::vector<std::string> site_dirs;
  /// Also accepts site folders, and folders above them, that their group can write.
  bool site_by_group = false;
  std::string shared_dir;  ///< a store on another mount, read and written; "": none
  /// Trusts shared_dir even if it belongs to another user or its group can write it. Everyone who
  /// can write it then decides what this process runs on the GPU: digests detect damage, not
  /// malice. It must exist and must not be world-writable; entries are added to it, never removed.
  bool shared_by_group = false;
  CacheMode mode = CacheMode::kNormal;
  /// Serves no artifact that lacks PTX or source (bundles may omit them), whatever its layer. It is
  /// compiled again, and the result replaces it in the folders. Needed for making bundles.
  bool whole_artifacts = false;
  /// Caps of the user's folder, counting entries and files set aside as damaged; 0: no cap.
  std::uint64_t max_bytes = std::uint64_t{2} << 30;
  std::uint64_t max_entries = 20000;
  std::int64_t negative_ttl_s = 24 * 3600;  ///< lifetime of remembered failures; 0: none is kept
  std::int64_t lock_wait_ms = 120000;       ///< wait for another process compiling the same kernel
  int compile_threads = 0;  ///< 0: the smaller of DefaultThreads() and what memory allows
  std::uint64_t compile_memory_bytes = std::uint64_t{512} << 20;  ///< budget of one compilation
  NvrtcSearch nvrtc;
  /// Used instead of NVRTC; for other compilers and tests.
  std::shared_ptr<const KernelCompiler> compiler;
  Bundle::OpenOptions bundle_options;
  /// What artifacts must run on; by default nothing is compared. launch_abi comes from the
  /// families.
  BundleNeeds device;
  /// Called after each kernel that this process compiled, on the thread that compiled it and for
  /// one kernel at a time. It must not throw, nor ask this store for a kernel.
  std::function<void(const KernelSpec& spec, double compile_ms)> on_compiled;
  std::string missing_list;  ///< where strict mode lists missing kernels; "": root + "/missing.txt"
};

struct StoreEnvironment;  // for the library's own tests

/// Compiled kernels, each compiled at most once. A kernel is requested by its spec and taken from
/// memory, bundles, the user's folder, site folders or a shared folder; if none has it, it is
/// compiled. All functions may be called from any number of threads and processes at the same time.
/// A layer that fails (unreadable, full, not trusted) is skipped; this is reported once in
/// warnings() and is never an error.
///
/// Nothing is loaded before it is needed: a store whose bundles hold everything never looks for a
/// compiler.
///
/// The child of a fork may keep using the store, whatever other threads were doing; their
/// unfinished work is abandoned in the child. (Whether NVRTC can compile in such a child is up to
/// NVRTC.)
class ArtifactStore {
 public:
  /// Keeps its own copy of `families`. Relative paths are resolved against the current working
  /// directory now. Errors: kInvalidArgument for families without sources, an invalid mode, or a
  /// bundle or list that was named and cannot be used at all.
  static Result<std::unique_ptr<ArtifactStore>> Open(const KernelFamilies& families,
                                                     ArtifactStoreOptions options);
  /// Waits for compilations that other threads started through this object.
  ~ArtifactStore();
  ArtifactStore(const ArtifactStore&) = delete;
  ArtifactStore& operator=(const ArtifactStore&) = delete;

  /// The handle if this process already has the kernel, else an empty one: one hash of the spec and
  /// one comparison, no allocation, no lock, under 100 ns. Safe on the launch path.
  KernelHandle Find(const KernelSpec& spec) const noexcept;

  /// The handle, from the first layer that has the kernel; compiles it as the last resort. A kernel
  /// is compiled by one thread of one process while the others wait. Errors: kInvalidArgument (spec
  /// or options); kUnsupported with the compiler's message (remembered for negative_ttl_s), or if
  /// options.device could not run the kernel; kNotFound in strict mode, naming the spec and the
  /// list; kUnavailable without a compiler, with the places searched and why the bundles did not
  /// serve; kCancelled; kCorrupt in verify mode if the recompiled bytes differ. A message is one
  /// line and starts with the spec's name.
  Result<KernelHandle> Compile(const KernelSpec& spec, const CompileControl& control = {});

  /// Compile for each spec, on compile_threads threads, in an order that lets several processes
  /// with the same list share the work. Continues after a failure; returns one result per spec.
  std::vector<Result<KernelHandle>> CompileAll(std::span<const KernelSpec> specs,
                                               const CompileControl& control = {});

  /// The artifact as bytes (an entry file), for the caller to store or transport.
  Result<std::string> Serialize(KernelHandle handle) const;
  /// Adopts such bytes: checks them as it would a file, compares them with the families of this
  /// store (source digests, launch ABI) and keeps them in memory, where Find and Compile find them
  /// from then on. kCorrupt; kUnsupported naming the field in which the artifact differs from what
  /// this store would produce.
  Result<KernelHandle> Deserialize(std::string_view bytes);

  const KernelFamilies& families() const;
  CacheMode mode() const;
  const std::string& root() const;
  /// The compiler's identity; loads the compiler. kUnavailable as LoadNvrtc.
  Result<CompilerIdentity> Compiler() const;
  std::vector<std::string> warnings() const;

  ArtifactCounters process_counters() const;
  /// Over all processes since the store was created; if the folder is read-only, the counts stored
  /// there plus this process's; if there is no folder, this process's alone.
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
    std::string trouble;    ///< why the entry cannot be read
  };
  /// Every entry of every layer but memory. Reads and checks each in full, to report whether it is
  /// intact: about 0.2 ms for an entry of 60 KB. Changes no time stamps and moves nothing.
  std::vector<EntryInfo> List() const;
  /// The bytes of an entry that List returned, for Import elsewhere, with the checks that apply
  /// when it is used (owner, mode, digests, key); for an entry of a bundle, EncodeArtifact of its
  /// artifact. kNotFound if it no longer exists; kCorrupt and kUnsupported as DecodeArtifact; kIo
  /// if it cannot be read; kInvalidArgument for a remembered failure or an entry of another store.
  Result<std::string> ReadEntry(const EntryInfo& entry) const;

  struct Totals {
    std::uint64_t entries = 0, bytes = 0;
    std::uint64_t negative = 0;
    std::uint64_t quarantined = 0;  ///< damaged files set aside; they count against the caps too
  };
  /// Totals of the user's folder.
  Totals GetTotals() const;

  struct VerifyReport {
    std::uint64_t good = 0;
    std::vector<std::string> troubles;  ///< one line per damaged entry, which was quarantined
    std::uint64_t recompiled = 0;       ///< compiled again and compared
    std::uint64_t differ = 0;  ///< of `recompiled`, those whose bytes differ; each in `troubles`
    /// Not compared: from other sources or another compiler, or in the format or key schema of
    /// another version that shares the folder.
    std::uint64_t not_ours = 0;
    /// Should have been compiled again, but Compile failed (no compiler, no memory, ...); `why_not`
    /// is the first such error. Not in `troubles`: nothing is known to be wrong with them.
    std::uint64_t not_recompiled = 0;
    std::string why_not;
    bool cancelled = false;  ///< stopped early: the counts cover only what was checked
  };
  /// Reads and checks every entry of the user's folder and the bundles; with `recompile` also
  /// compiles each again and compares the bytes. Without a compiler all of them are counted as
  /// `not_recompiled`. Uses compile_threads threads, with compile_memory_bytes for each. The lines
  /// of the report are ordered by key, files before bundles, whatever finished first.
  VerifyReport Verify(bool recompile, const CompileControl& control = {});

  struct GcReport {
    std::uint64_t removed_entries = 0, removed_bytes = 0;
    std::uint64_t removed_temporaries = 0, removed_negative = 0, removed_quarantined = 0;
    std::string note;  ///< what could not be judged: without a compiler, entries of other compilers
  };
  /// Trims the user's folder to its caps, removes what dead processes left behind, and drops
  /// expired failures; with `unreachable` also entries of older sources or other compilers.
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
    /// SpecName and place of the stored entry that differs in the fewest fields; "" if there is
    /// none.
    std::string nearest;
    std::vector<KeyDifference> differences;
  };
  /// Which layer would serve `spec`; if none would, how the nearest stored entry differs, field by
  /// field (reads all entries, as List does). Compiles nothing and counts nothing.
  Result<MissExplanation> Explain(const KernelSpec& spec) const;

  /// Puts an artifact's bytes into the user's folder (cache import). True if it was not there yet.
  Result<bool> Import(std::string_view bytes);

 private:
  friend Result<std::unique_ptr<ArtifactStore>> OpenArtifactStore(const KernelFamilies& families,
                                                                  ArtifactStoreOptions options,
                                                                  const StoreEnvironment& env);
  struct Impl;
  explicit ArtifactStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The specs of a list file, the format of strict mode's list: one SpecName per line; # starts a
/// comment, blank lines are skipped. kInvalidArgument names the line.
Result<std::vector<KernelSpec>> ParseSpecList(std::string_view text, std::string_view file_name);

}  // namespace tilewright
