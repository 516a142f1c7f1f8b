#include "fake_cuda_state.h"

#include <cstdlib>
#include <sstream>

namespace tilewright::cuda {

thread_local Ctx* State::current = nullptr;

State& TheState() {
  // Never freed: the driver outlives everything.
  static State& state = *new State();
  return state;
}

State::State() {
  const char* text = std::getenv("FAKE_CUDA_ANSWERS");
  std::istringstream answers(text != nullptr ? text : "");
  for (std::string function; std::getline(answers, function, '=');) {
    int result = 0, after = 0;
    char separator = 0;
    answers >> result;
    if (answers.peek() == '@') answers >> separator >> after;
    if (answers.peek() == ',') answers >> separator;
    answers_[function] = {static_cast<CUresult>(result), after};
  }
}

int State::Queue(std::uintptr_t stream, std::function<int()> work) {
  return InContext("Queue", [&](Ctx& ctx) {
    if (work == nullptr) return CUDA_SUCCESS;
    return Give(ctx, reinterpret_cast<CUstream>(stream),
                {[work = std::move(work)] { return static_cast<CUresult>(work()); }});
  });
}
void State::SetKernels(std::function<int(const Launch&)> run) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  kernels = std::move(run);
}

void State::StartCounting() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  calls_.clear();
}

std::size_t State::calls() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  std::size_t sum = 0;
  for (const auto& [name, count] : calls_) sum += count;
  return sum;
}

std::size_t State::calls(const std::string& function) const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const auto found = calls_.find(function);
  return found == calls_.end() ? 0 : found->second;
}

std::string State::alive() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  std::size_t contexts = 0, memory = 0, pinned = 0, streams = 0, events = 0, modules = 0,
              graphs = 0;
  for (const Ctx& ctx : gpus) {
    contexts += static_cast<std::size_t>(ctx.retained);
    memory += ctx.memory.size();
    pinned += ctx.pinned.size();
    streams += ctx.streams.size();
    events += ctx.events.size();
    modules += ctx.modules.size();
    graphs += ctx.graphs.size();
  }
  std::string text;
  const auto add = [&text](std::size_t count, const char* what) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
  };
  add(contexts, "contexts"), add(memory, "memory"), add(pinned, "pinned");
  add(streams, "streams"), add(events, "events"), add(modules, "modules");
  add(graphs, "graphs");
  return text;
}

std::size_t State::pending() const {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  std::size_t count = 0;
  for (const Ctx& ctx : gpus) {
    for (const Strm* stream : ctx.streams) count += stream->jobs.size();
    count += ctx.legacy.jobs.size();
  }
  return count;
}

void State::SetLaunchTimes(std::function<double(const Launch&)> us) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  launch_us = std::move(us);
}

void State::AnswerNext(const std::string& function, int result, int after) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  answers_[function] = {static_cast<CUresult>(result), after};
}

void State::SetDriver(int of_init, int of_version) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  init = of_init;
  version = of_version;
}

Strm* State::Find(Ctx& ctx, CUstream stream) {
  if (stream == nullptr) return &ctx.legacy;
  const auto found = ctx.streams.find(reinterpret_cast<Strm*>(stream));
  return found == ctx.streams.end() ? nullptr : *found;
}

CUresult State::Give(Ctx& ctx, CUstream stream, Job job) {
  Strm* found = Find(ctx, stream);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  (found->captured != nullptr ? *found->captured : found->jobs).push_back(std::move(job));
  return CUDA_SUCCESS;
}

CUresult State::Drive(Strm& stream, const std::function<bool()>& done) {
  Ctx& ctx = *stream.ctx;
  while (!done() && !stream.jobs.empty()) {
    const Job job = std::move(stream.jobs.front());
    stream.jobs.pop_front();
    if (job.wait != nullptr && job.wait->happened < job.wait_for) {
      const auto happened = [&] { return job.wait->happened >= job.wait_for; };
      if (CUresult result = Drive(*job.wait->stream, happened); result != CUDA_SUCCESS) {
        return result;
      }
    }
    const CUresult result = job.run ? job.run() : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS) continue;
    ctx.fault = result;
    return result;
  }
  return CUDA_SUCCESS;
}

CUresult State::DriveAll(Ctx& ctx) {
  const auto never = [] { return false; };
  for (Strm* stream : ctx.streams) {
    if (CUresult result = Drive(*stream, never); result != CUDA_SUCCESS) return result;
  }
  return Drive(ctx.legacy, never);
}

bool State::Valid(const Ctx& ctx, CUdeviceptr at, std::size_t bytes) {
  auto next = ctx.memory.upper_bound(at);
  if (next == ctx.memory.begin()) return false;
  --next;
  return at - next->first <= next->second && bytes <= next->second - (at - next->first);
}

void State::Drop(Ctx& ctx) {
  for (const auto& [at, bytes] : ctx.memory) std::free(reinterpret_cast<void*>(at));
  for (void* memory : ctx.pinned) std::free(memory);
  for (Strm* stream : ctx.streams) delete stream;
  for (Evt* event : ctx.events) delete event;
  for (Mod* module : ctx.modules) delete module;
  for (Jobs* graph : ctx.graphs) delete graph;
  ctx = Ctx{};
}

}  // namespace tilewright::cuda
