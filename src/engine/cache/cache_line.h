#pragma once

#include <string>
#include <vector>

#include "tilewright/dispatch_cache.h"

namespace tilewright {

/// An entry of a dispatch cache file as text, docs/dispatch_cache.md.
struct CacheLine {
  std::string op, problem, device, policy, kernel, fingerprint;
  std::string spec;  ///< SpecText
  double measured_us = 0, predicted_us = 0;
  bool provisional = false;
  std::string extra;  ///< members that this version does not know, a JSON object; "" = none
};

/// Lines with their seals, without their ends.
std::string CacheHeader(const std::string& device);
std::string TextOf(const CacheLine& line);

enum class CacheLineKind {
  kHeader,
  kEntry,   ///< `line` is filled in
  kLater,   ///< an entry of a later version
  kCorrupt  ///< does not parse, fails its seal, or says what cannot be
};
CacheLineKind ReadCacheLine(const std::string& text, CacheLine& line);
/// A sealed line as this version writes it: the same content has one text.
std::string Resealed(const std::string& text);

/// What became of a line that was imported.
enum class ImportedLine {
  kHeader,
  kResolved,
  kUnknownKernel,
  kStale,
  kInfeasible,
  kUnknownLaunch,
  kForeign,
  kCorrupt,
  kWorse
};

/// Counts imported lines, and words what went wrong.
class ImportTally {
 public:
  void Count(ImportedLine line, int number);
  /// A line that was counted as resolved is worse than a later one.
  void Overtaken(int number);
  void StoppedEarly() { stopped_ = true; }
  ImportReport Report() const;

 private:
  struct Kind {
    int seen = 0, first = 0;
  };
  static constexpr int kKinds = 9;
  Kind kinds_[kKinds];
  bool stopped_ = false;
};

}  // namespace tilewright
