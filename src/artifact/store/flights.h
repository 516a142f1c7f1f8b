#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "core/hash.h"
#include "tilewright/artifact.h"
#include "tilewright/compiler.h"
#include "tilewright/result.h"

namespace tilewright {

struct SpecHash {
  std::size_t operator()(const KernelSpec& spec) const { return HashValue(spec); }
};

/// Single flight: one thread works on a spec while the others wait for its result. Any thread.
///
/// All waiters get the leader's outcome, an artifact or an error; then the flight is removed, so
/// that a later call tries again. A leader that gives up (it was cancelled, threw, or will try
/// later) leaves no outcome, and one of the waiters becomes the leader.
class Flights {
 public:
  using Outcome = Result<const ArtifactData*>;

 private:
  struct Flight {
    std::mutex mutex;
    std::condition_variable changed;
    bool over = false;
    std::optional<Outcome> outcome;
  };

 public:
  /// The leader's hold on a flight; destroyed without Finish, it leaves no outcome.
  class Leader {
   public:
    Leader(Flights& flights, const KernelSpec& spec, std::shared_ptr<Flight> flight)
        : flights_(&flights), spec_(spec), flight_(std::move(flight)) {}
    Leader(Leader&& other) noexcept = default;
    Leader& operator=(Leader&&) = delete;
    ~Leader() {
      if (flight_ != nullptr) End(std::nullopt);
    }
    void Finish(const Outcome& outcome) { End(outcome); }

   private:
    void End(std::optional<Outcome> outcome);

    Flights* flights_;
    KernelSpec spec_;
    std::shared_ptr<Flight> flight_;
  };

  /// Either the right to lead or a flight to wait for.
  struct Joined {
    std::optional<Leader> leader;
    std::shared_ptr<Flight> flight;  // if `leader` is empty
  };
  Joined Join(const KernelSpec& spec);

  enum class Wait { kOutcome, kNoOutcome, kCancelled };
  /// Waits for the leader; polls `cancelled` about every 50 ms.
  static Wait WaitFor(Flight& flight, const CancelFn& cancelled, std::optional<Outcome>& outcome);

 private:
  std::mutex mutex_;
  std::unordered_map<KernelSpec, std::shared_ptr<Flight>, SpecHash> flights_;
};

}  // namespace tilewright
