// Many kernels: on several threads of this process, sharing the work with other processes that have
// the same list.

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "artifact/store/messages.h"
#include "artifact/store/store_impl.h"
#include "core/hash.h"

namespace tilewright {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// One of the specs, with its positions in the caller's list.
struct Item {
  KernelSpec spec;
  std::vector<std::size_t> places;
  std::optional<KernelRequest> request;
  Clock::time_point not_before{};
  milliseconds pause{1};
};

/// The remaining work. A worker takes an item, and finishes it or puts it back.
class Queue {
 public:
  explicit Queue(std::vector<Item*> items) : waiting_(items.begin(), items.end()) {}

  /// The next item that may be tried now; waits if all are being tried or must wait. nullptr when
  /// everything is finished.
  Item* Take() {
    std::unique_lock lock(mutex_);
    while (true) {
      if (waiting_.empty() && busy_ == 0) return nullptr;
      const auto now = Clock::now();
      auto next = waiting_.end();
      for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
        if ((*it)->not_before <= now) {
          next = it;
          break;
        }
        if (next == waiting_.end() || (*it)->not_before < (*next)->not_before) next = it;
      }
      if (next != waiting_.end() && (*next)->not_before <= now) {
        Item* const item = *next;
        waiting_.erase(next);
        ++busy_;
        return item;
      }
      if (next == waiting_.end()) {
        changed_.wait(lock);
      } else {
        changed_.wait_until(lock, (*next)->not_before);
      }
    }
  }
  void PutBack(Item* item) {
    item->not_before = Clock::now() + item->pause;
    item->pause = std::min(2 * item->pause, milliseconds(50));
    const std::lock_guard lock(mutex_);
    --busy_;
    waiting_.push_back(item);
    changed_.notify_one();
  }
  void Finish() {
    const std::lock_guard lock(mutex_);
    if (--busy_ == 0 && waiting_.empty()) changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item*> waiting_;
  int busy_ = 0;
};

/// Progress made by workers, reported by the caller's thread.
class Progress {
 public:
  Progress(std::size_t total, const CompileControl& control) : control_(control), total_(total) {}

  void Add(const Item& item, bool compiled) {
    const std::lock_guard lock(mutex_);
    state_.done += item.places.size();
    state_.total = total_;
    state_.compiled += compiled ? 1 : 0;
    state_.last = item.spec;
    news_.push_back(state_);
  }
  void Report() {
    std::vector<CompileProgress> news;
    {
      const std::lock_guard lock(mutex_);
      news.swap(news_);
    }
    if (!control_.progress) return;
    for (const CompileProgress& progress : news) control_.progress(progress);
  }

 private:
  const CompileControl& control_;
  const std::size_t total_;
  std::mutex mutex_;
  CompileProgress state_;
  std::vector<CompileProgress> news_;
};

std::vector<Item> Distinct(std::span<const KernelSpec> specs) {
  std::vector<Item> items;
  std::unordered_map<KernelSpec, std::size_t, SpecHash> index;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto [it, fresh] = index.try_emplace(specs[i], items.size());
    if (fresh) items.push_back({specs[i], {}, {}, {}, milliseconds(1)});
    items[it->second].places.push_back(i);
  }
  return items;
}

}  // namespace

std::vector<Result<KernelHandle>> ArtifactStore::Impl::CompileAll(std::span<const KernelSpec> specs,
                                                                  const CompileControl& control) {
  const bool leading = Leading::Leads(*this);
  std::vector<Result<const ArtifactData*>> found(specs.size());
  std::vector<Item> items = Distinct(specs);
  Progress progress(specs.size(), control);

  // Processes that start together begin at different places of the list and skip kernels that
  // another one is compiling; those are found in the store when their turn comes again.
  std::vector<Item*> order;
  order.reserve(items.size());
  for (Item& item : items) order.push_back(&item);
  if (!order.empty()) {
    const std::uint64_t who =
        HashCombine(Hash64(process.host + process.boot), static_cast<std::uint64_t>(getpid()));
    std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(who % order.size()),
                order.end());
  }
  Queue queue(std::move(order));

  const auto try_item = [&](Item& item, const CancelFn& cancelled) -> Attempt {
    if (cancelled && cancelled()) {
      return {Fail(ErrorCode::kCancelled, SpecName(item.spec) + ": cancelled"), false};
    }
    if (!item.request) {
      if (const ArtifactData* const data = CountedFind(item.spec)) return {data, false};
      if (leading) return {Fail(AskedWhileLeading(item.spec)), false};
      auto request = Resolve(item.spec);
      if (!request) return {Fail(std::move(request.error())), false};
      item.request = std::move(*request);
    }
    // Never waits for another thread, which may itself be waiting for this call.
    Flights::Joined joined = runtime().flights.Join(item.spec);
    if (!joined.leader) return {};
    Attempt attempt = Try(*item.request, cancelled);
    if (attempt.outcome &&
        (*attempt.outcome || attempt.outcome->error().code != ErrorCode::kCancelled)) {
      joined.leader->Finish(*attempt.outcome);
    }
    return attempt;
  };
  const auto work = [&](std::size_t, const CancelFn& cancelled) {
    while (Item* const item = queue.Take()) {
      Attempt attempt = Guarded(item->spec, [&] { return try_item(*item, cancelled); });
      if (!attempt.outcome) {
        queue.PutBack(item);
        continue;
      }
      for (const std::size_t place : item->places) found[place] = *attempt.outcome;
      progress.Add(*item, attempt.compiled && attempt.outcome->has_value());
      queue.Finish();
    }
  };
  CompileService::RunControl run;
  run.cancelled = [&] {
    progress.Report();
    return control.cancelled && control.cancelled();
  };
  const std::size_t workers =
      std::min(items.size(), static_cast<std::size_t>(runtime().service.threads()));
  runtime().service.Run(workers, work, run);
  progress.Report();

  std::vector<Result<KernelHandle>> results;
  results.reserve(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i]) {
      results.push_back(KernelHandle(*found[i]));
    } else {
      results.push_back(Fail(NamedError(specs[i], std::move(found[i].error()))));
    }
  }
  return results;
}

}  // namespace tilewright
