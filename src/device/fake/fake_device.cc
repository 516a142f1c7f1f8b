#include "device/fake/fake_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/random.h"
#include "core/text.h"

namespace tilewright {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t RoundUp(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

class Fake;

/// A place in a stream's work: whether the stream has come there.
struct Mark {
  bool happened = false;
};

/// Its last Record. Whoever waits keeps the mark that was the last then: the event may be recorded
/// again, in another stream, or be destroyed before the wait is over.
class FakeEvent final : public DeviceEvent {
 public:
  std::shared_ptr<Mark> mark;  ///< nullptr before the first Record
};

/// Work in a stream: something to do, or an event to wait for.
struct Work {
  std::function<Status()> run;
  std::shared_ptr<const Mark> wait = nullptr;
};

struct Queue {
  std::deque<Work> work;
  std::optional<Error> error;
  bool capturing = false;
  std::vector<std::function<Status()>> captured;
};

class FakeStream final : public DeviceStream {
 public:
  FakeStream(Fake& device, Executor* executor);
  ~FakeStream() override;
  Stream stream() const override { return Stream{executor_, queue_.get()}; }
  Queue& queue() { return *queue_; }

 private:
  Fake& device_;
  Executor* executor_;
  std::unique_ptr<Queue> queue_;
};

/// Runs the captured work again each time, in the stream it is launched in.
class FakeGraph final : public DeviceGraph {
 public:
  FakeGraph(FakeDevice& device, std::vector<std::function<Status()>> work)
      : device_(device), work_(std::move(work)) {}
  Status Launch(Stream stream) override {
    for (const auto& work : work_) device_.Submit(stream, work);
    return {};
  }

 private:
  FakeDevice& device_;
  std::vector<std::function<Status()>> work_;
};

/// Address space without access; allocations are whole pages in it, first fit.
class HiddenMemory {
 public:
  explicit HiddenMemory(std::size_t bytes) : bytes_(RoundUp(bytes)) {
    void* at = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base_ = at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }
  HiddenMemory(const HiddenMemory&) = delete;
  HiddenMemory& operator=(const HiddenMemory&) = delete;
  ~HiddenMemory() {
    if (base_ != nullptr) munmap(base_, bytes_);
  }
  explicit operator bool() const { return base_ != nullptr; }

  /// A page without access stays between any two allocations.
  std::byte* Allocate(std::size_t bytes) {
    const std::size_t wanted = RoundUp(bytes) + kPage;
    std::size_t at = 0;
    for (const auto& [offset, size] : taken_) {
      if (offset - at >= wanted) break;
      at = offset + size;
    }
    if (bytes_ - at < wanted) return nullptr;
    taken_[at] = wanted;
    return base_ + at;
  }
  void Free(void* data) {
    const auto at = static_cast<std::size_t>(static_cast<std::byte*>(data) - base_);
    const auto found = taken_.find(at);
    // The next owner of these pages must not see the old contents.
    madvise(base_ + at, found->second, MADV_DONTNEED);
    taken_.erase(found);
  }
  void SetAccess(bool on) {
    for (const auto& [offset, size] : taken_)
      mprotect(base_ + offset, size - kPage, on ? PROT_READ | PROT_WRITE : PROT_NONE);
  }

 private:
  std::size_t bytes_;
  std::byte* base_ = nullptr;
  std::map<std::size_t, std::size_t> taken_;
};

/// One thread at a time drives the device, whichever thread synchronises; the others wait for it.
class Fake final : public FakeDevice {
 public:
  Fake(DeviceSpec spec, const Options& options)
      : spec_(std::move(spec)),
        executor_(options.executor),
        memory_(options.memory_bytes),
        random_(options.seed) {
    if (memory_) default_stream_ = std::make_unique<FakeStream>(*this, executor_);
  }
  ~Fake() override { default_stream_.reset(); }
  bool ok() const { return static_cast<bool>(memory_); }

  const DeviceSpec& spec() const override { return spec_; }
  bool host_accessible() const override { return false; }

  Result<DeviceMemory> Allocate(std::size_t bytes) override {
    if (bytes == 0) return DeviceMemory();
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    void* data = memory_.Allocate(bytes);
    if (data == nullptr) {
      return Fail(ErrorCode::kOutOfMemory,
                  Format("no memory for {} on the fake device", HumanBytes(bytes)));
    }
    return DeviceMemory(*this, data, bytes, false);
  }
  Result<DeviceMemory> AllocateStaging(std::size_t bytes) override {
    if (bytes == 0) return DeviceMemory();
    void* data = DefaultAllocator().Allocate(bytes, 64);
    if (data == nullptr)
      return Fail(ErrorCode::kOutOfMemory, Format("no host memory for {}", HumanBytes(bytes)));
    return DeviceMemory(*this, data, bytes, true);
  }

  Status Upload(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return Move(to, from, bytes, stream);
  }
  Status Download(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return Move(to, from, bytes, stream);
  }
  Status Copy(void* to, const void* from, std::size_t bytes, Stream stream) override {
    return Move(to, from, bytes, stream);
  }
  Status Fill(void* to, std::uint8_t value, std::size_t bytes, Stream stream) override {
    Submit(stream, [=]() -> Status {
      if (bytes > 0) std::memset(to, value, bytes);
      return {};
    });
    return {};
  }

  Stream default_stream() override { return default_stream_->stream(); }
  Result<std::unique_ptr<DeviceStream>> CreateStream() override {
    return std::unique_ptr<DeviceStream>(std::make_unique<FakeStream>(*this, executor_));
  }
  Result<std::unique_ptr<DeviceEvent>> CreateEvent() override {
    return std::unique_ptr<DeviceEvent>(std::make_unique<FakeEvent>());
  }
  Status Record(DeviceEvent& event, Stream stream) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    const auto mark = std::make_shared<Mark>();
    static_cast<FakeEvent&>(event).mark = mark;
    Submit(stream, [mark]() -> Status {
      mark->happened = true;
      return {};
    });
    return {};
  }
  Status Wait(Stream stream, const DeviceEvent& event) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    const auto& mark = static_cast<const FakeEvent&>(event).mark;
    if (mark != nullptr) QueueOf(stream).work.push_back({{}, mark});
    return {};
  }
  Status WaitOnHost(const DeviceEvent& event) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    const auto mark = static_cast<const FakeEvent&>(event).mark;
    return Drive([&] { return mark == nullptr || mark->happened; });
  }
  Status Synchronize(Stream stream) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    Queue& queue = QueueOf(stream);
    if (Status status = Drive([&] { return queue.work.empty(); }); !status) return status;
    if (!queue.error) return {};
    return Fail(*std::exchange(queue.error, std::nullopt));
  }

  bool can_capture() const override { return true; }
  Result<std::unique_ptr<DeviceGraph>> Capture(Stream stream,
                                               const std::function<Status()>& submit) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    Queue& queue = QueueOf(stream);
    queue.capturing = true;
    const Status submitted = submit();
    queue.capturing = false;
    auto work = std::exchange(queue.captured, {});
    if (!submitted) return Fail(submitted.error());
    return std::unique_ptr<DeviceGraph>(std::make_unique<FakeGraph>(*this, std::move(work)));
  }

  void Submit(Stream stream, std::function<Status()> work) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    Queue& queue = QueueOf(stream);
    if (queue.capturing) {
      queue.captured.push_back(std::move(work));
    } else {
      queue.work.push_back({std::move(work), nullptr});
    }
  }
  std::size_t pending() const override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    std::size_t count = 0;
    for (const Queue* queue : queues_) count += queue->work.size();
    return count;
  }
  bool accessible() const override { return accessible_; }

  void Add(Queue& queue) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    queues_.push_back(&queue);
  }
  void Remove(Queue& queue) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    static_cast<void>(Drive([&] { return queue.work.empty(); }));
    queues_.erase(std::find(queues_.begin(), queues_.end(), &queue));
  }

 private:
  static Queue& QueueOf(Stream stream) { return *static_cast<Queue*>(stream.native); }

  Status Move(void* to, const void* from, std::size_t bytes, Stream stream) {
    Submit(stream, [=]() -> Status {
      if (bytes > 0) std::memmove(to, from, bytes);
      return {};
    });
    return {};
  }

  static bool Ready(const Queue& queue) {
    if (queue.work.empty()) return false;
    const Work& next = queue.work.front();
    return next.wait == nullptr || next.wait->happened;
  }

  /// Runs ready work, one piece at a time from a randomly chosen stream, until `done`.
  template <class Done>
  Status Drive(Done&& done) {
    while (!done()) {
      std::vector<Queue*> ready;
      for (Queue* queue : queues_) {
        if (Ready(*queue)) ready.push_back(queue);
      }
      if (ready.empty()) {
        return Fail(ErrorCode::kInternal,
                    "the streams of the fake device wait for events that are never recorded");
      }
      RunNext(*ready[random_.Below(ready.size())]);
    }
    return {};
  }

  void RunNext(Queue& queue) {
    Work work = std::move(queue.work.front());
    queue.work.pop_front();
    if (!work.run) return;  // the event it waited for has happened
    memory_.SetAccess(true);
    accessible_ = true;
    Status status = work.run();
    accessible_ = false;
    memory_.SetAccess(false);
    if (!status && !queue.error) queue.error = status.error();
  }

  void Free(void* data, std::size_t) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    Finish();
    memory_.Free(data);
  }
  void FreeStaging(void* data, std::size_t bytes) override {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    Finish();
    DefaultAllocator().Free(data, bytes);
  }
  /// Memory is freed once the work that was submitted before is done, as cuMemFree does.
  void Finish() {
    if (accessible_) return;  // within that work
    static_cast<void>(Drive([&] {
      return std::all_of(queues_.begin(), queues_.end(),
                         [](const Queue* queue) { return queue->work.empty(); });
    }));
  }

  DeviceSpec spec_;
  Executor* executor_;
  HiddenMemory memory_;
  Random random_;
  std::vector<Queue*> queues_;
  mutable std::recursive_mutex mutex_;    // guards all above
  std::atomic<bool> accessible_ = false;  // kernels ask from the executor's threads
  std::unique_ptr<FakeStream> default_stream_;
};

FakeStream::FakeStream(Fake& device, Executor* executor)
    : device_(device), executor_(executor), queue_(std::make_unique<Queue>()) {
  device_.Add(*queue_);
}
FakeStream::~FakeStream() { device_.Remove(*queue_); }

}  // namespace

Result<std::unique_ptr<FakeDevice>> FakeDevice::Create(DeviceSpec spec, const Options& options) {
  auto device = std::make_unique<Fake>(std::move(spec), options);
  if (!device->ok()) {
    return Fail(ErrorCode::kOutOfMemory,
                Format("no address space of {}", HumanBytes(options.memory_bytes)));
  }
  return std::unique_ptr<FakeDevice>(std::move(device));
}

}  // namespace tilewright
