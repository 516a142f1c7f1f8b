#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core/arena_test_util.h"
#include "engine/op_traits.h"
#include "tilewright/device.h"
#include "tilewright/stages.h"

namespace tilewright::test {

/// Queues a call by one kernel on a copy of `arena` in the memory of `device`, and copies it back.
template <class Op>
Status RunOnDevice(const Plan<Op>& plan, const ArenaCase<typename Op::Args>& call, Device& device,
                   Arena& arena) {
  const Stream stream = device.default_stream();
  Result<DeviceMemory> memory = device.Allocate(arena.size());
  if (!memory) return Fail(memory.error());
  if (Status s = device.Upload(memory->data(), arena.base(), arena.size(), stream); !s) return s;
  typename Op::Args args = call.At(memory->data());
  constexpr std::int64_t kPositions = 4;  // fewer than the calls have: a table is no limit
  PreparedOf<Op> prepared;
  if (Status s = prepared.Prepare(args, device, stream, kPositions); !s) return s;
  Result<OwnedWorkspace> workspace = OwnedWorkspace::Make(plan.workspace(), device);
  if (!workspace) return Fail(workspace.error());
  if (Status s = Run(plan, args, workspace->get(), stream); !s) return s;
  if (Status s = device.Download(arena.base(), memory->data(), arena.size(), stream); !s) return s;
  return device.Synchronize(stream);
}

/// Runs a call by every feasible kernel of `registry`, each twice, against the oracle; how many
/// there were.
template <class Op>
int ExpectRightOnDevice(const OpRegistry<Op>& registry, Device& device,
                        const ArenaCase<typename Op::Args>& call,
                        Status (*oracle)(const typename Op::Args&)) {
  const auto desc = DescOf(call.args, CallTerms{});
  EXPECT_TRUE(desc) << call.name << ": " << desc.error().message;
  if (!desc) return 0;
  Arena want = call.arena;
  const Status right = oracle(call.At(want.base()));
  EXPECT_TRUE(right) << call.name << ": " << right.error().message;
  int ran = 0;
  const Candidates<Op> all = Feasible(Validate(*desc).value(), registry, device.spec());
  for (const auto& candidate : all.all()) {
    if (!candidate.feasible()) continue;
    const std::string name(candidate.kernel->name());
    Pins pins;
    pins.by_problem[{std::string(Op::kName), KeyOf(*desc)}] = {name, SpecText(candidate.specs[0])};
    const auto plan = Bind(Choose(all, nullptr, &pins).value(), device);
    EXPECT_TRUE(plan) << name << ": " << plan.error().message;
    if (!plan) continue;
    Arena first = call.arena, second = call.arena;
    for (Arena* got : {&first, &second}) {
      const Status done = RunOnDevice<Op>(*plan, call, device, *got);
      EXPECT_TRUE(done) << name << ": " << call.name << ": " << done.error().message;
      if (!done) return ran;
    }
    EXPECT_EQ(DifferenceOf(call, first, want), "") << name;
    EXPECT_EQ(std::memcmp(first.base(), second.base(), first.size()), 0)
        << name << " gives other bits the second time: " << call.name;
    ++ran;
  }
  EXPECT_GT(ran, 0) << "no kernel takes " << KeyOf(*desc);
  return ran;
}

}  // namespace tilewright::test
