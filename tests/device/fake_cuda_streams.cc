// The functions of a libcuda that has no GPU behind it (fake_cuda.h): streams, events and graphs.

#include <algorithm>

#include "fake_cuda_state.h"

using tilewright::cuda::Ctx;
using tilewright::cuda::Evt;
using tilewright::cuda::Job;
using tilewright::cuda::Jobs;
using tilewright::cuda::Strm;
using tilewright::cuda::TheState;

#pragma GCC visibility push(default)
extern "C" {

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  return TheState().InContext("cuStreamCreate", [&](Ctx& ctx) {
    auto* made = new Strm;
    made->ctx = &ctx;
    ctx.streams.insert(made);
    *stream = reinterpret_cast<CUstream>(made);
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamDestroy(CUstream stream) {
  return TheState().InContext("cuStreamDestroy", [&](Ctx& ctx) {
    auto* gone = reinterpret_cast<Strm*>(stream);
    if (ctx.streams.erase(gone) == 0) return CUDA_ERROR_INVALID_HANDLE;
    delete gone;  // with the work that nobody waited for: a GPU would do it some time
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamSynchronize(CUstream stream) {
  return TheState().InContext("cuStreamSynchronize", [&](Ctx& ctx) {
    Strm* found = TheState().Find(ctx, stream);
    if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    return TheState().Drive(*found, [] { return false; });
  });
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  return TheState().InContext("cuStreamWaitEvent", [&](Ctx& ctx) {
    auto* waited = reinterpret_cast<Evt*>(event);
    if (waited->recorded == 0) return CUDA_SUCCESS;
    return TheState().Give(ctx, stream, {{}, waited, waited->recorded});
  });
}
CUresult cuStreamBeginCapture(CUstream stream, CUstreamCaptureMode) {
  return TheState().InContext("cuStreamBeginCapture", [&](Ctx& ctx) {
    Strm* found = TheState().Find(ctx, stream);
    if (found == nullptr || stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    found->captured = std::make_unique<Jobs>();
    return CUDA_SUCCESS;
  });
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return TheState().InContext("cuStreamEndCapture", [&](Ctx& ctx) {
    Jobs* captured = TheState().Find(ctx, stream)->captured.release();
    ctx.graphs.insert(captured);
    *graph = reinterpret_cast<CUgraph>(captured);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  return TheState().InContext("cuEventCreate", [&](Ctx& ctx) {
    auto* made = new Evt{&ctx};
    ctx.events.insert(made);
    *event = reinterpret_cast<CUevent>(made);
    return CUDA_SUCCESS;
  });
}
CUresult cuEventDestroy(CUevent event) {
  return TheState().InContext("cuEventDestroy", [&](Ctx& ctx) {
    auto* gone = reinterpret_cast<Evt*>(event);
    if (ctx.events.count(gone) == 0) return CUDA_ERROR_INVALID_HANDLE;
    // Streams may still wait for it; a GPU keeps it for them.
    if (CUresult result = TheState().DriveAll(ctx); result != CUDA_SUCCESS) return result;
    ctx.events.erase(gone);
    delete gone;
    return CUDA_SUCCESS;
  });
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  return TheState().InContext("cuEventRecord", [&](Ctx& ctx) {
    auto* recorded = reinterpret_cast<Evt*>(event);
    Strm* in = TheState().Find(ctx, stream);
    if (ctx.events.count(recorded) == 0 || in == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    const std::uint64_t count = ++recorded->recorded;
    recorded->stream = in;
    return TheState().Give(ctx, stream, {[recorded, count] {
                             recorded->happened = std::max(recorded->happened, count);
                             recorded->at_us = TheState().clock_us;
                             return CUDA_SUCCESS;
                           }});
  });
}
CUresult cuEventSynchronize(CUevent event) {
  return TheState().InContext("cuEventSynchronize", [&](Ctx&) {
    auto* waited = reinterpret_cast<Evt*>(event);
    if (waited->recorded == 0) return CUDA_SUCCESS;
    const std::uint64_t wanted = waited->recorded;
    return TheState().Drive(*waited->stream, [=] { return waited->happened >= wanted; });
  });
}
CUresult cuEventElapsedTime(float* ms, CUevent begin, CUevent end) {
  const double us = reinterpret_cast<Evt*>(end)->at_us - reinterpret_cast<Evt*>(begin)->at_us;
  *ms = static_cast<float>(1 + us * 1e-3);
  return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long) {
  return TheState().InContext("cuGraphInstantiateWithFlags", [&](Ctx& ctx) {
    auto* copy = new Jobs(*reinterpret_cast<Jobs*>(graph));
    ctx.graphs.insert(copy);
    *made = reinterpret_cast<CUgraphExec>(copy);
    return CUDA_SUCCESS;
  });
}
CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  return TheState().InContext("cuGraphLaunch", [&](Ctx& ctx) {
    if (ctx.graphs.count(reinterpret_cast<Jobs*>(graph)) == 0) return CUDA_ERROR_INVALID_HANDLE;
    for (const Job& job : *reinterpret_cast<Jobs*>(graph)) TheState().Give(ctx, stream, job);
    return CUDA_SUCCESS;
  });
}
CUresult cuGraphDestroy(CUgraph graph) {
  return TheState().InContext("cuGraphDestroy", [&](Ctx& ctx) {
    auto* gone = reinterpret_cast<Jobs*>(graph);
    if (ctx.graphs.erase(gone) == 0) return CUDA_ERROR_INVALID_HANDLE;
    delete gone;
    return CUDA_SUCCESS;
  });
}
CUresult cuGraphExecDestroy(CUgraphExec graph) {
  return cuGraphDestroy(reinterpret_cast<CUgraph>(graph));
}

}  // extern "C"
#pragma GCC visibility pop
