#include <gtest/gtest.h>

#include <filesystem>

#include "core/faulty_filesystem.h"
#include "dir_fixture.h"

/// kill -9 in place of every single system call of every operation, and in the middle of every
/// write: whatever is left, the store opens, holds no damaged entry, and continues to work.

namespace tilewright::test {
namespace {

StoreDir::Options With(Filesystem& files) {
  StoreDir::Options options;
  options.files = &files;
  options.max_entries = 20;
  options.max_bytes = 1 << 20;
  return options;
}

struct Operation {
  std::string name;
  /// Before the fault, in the parent.
  std::function<void(const std::string& root)> prepare;
  /// In the child, step by step; opens the store itself where that is what is tested.
  std::function<void(const std::string& root, FaultyFilesystem& files, const Fault& fault)> run;
};

void Run(const std::string& root, FaultyFilesystem& files, const Fault& fault,
         const std::function<void(StoreDir&)>& work) {
  const auto dir = StoreDir::Open(root, With(files));
  files.Arm(fault);
  work(*dir);
  files.Disarm();
}

constexpr int kOld = 6;  // entries that were there before

void PublishOld(const std::string& root) {
  const auto dir = StoreDir::Open(root, With(SystemFilesystem()));
  for (int i = 0; i < kOld; ++i) {
    const Entry entry = MakeTestEntry(i);
    ASSERT_EQ(dir->Publish(entry.action, entry.bytes), StoreDir::Published::kNew);
  }
}

void Damage(const std::string& root, int number) {
  const std::string path = EntryPath(root, MakeTestEntry(number).action);
  std::string bytes = ReadText(path);
  ASSERT_GT(bytes.size(), 100u);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  WriteText(path, bytes);
}

StoreDir::Negative Refusal() {
  return {"error: no such instruction", SystemFilesystem().NowUnixSeconds(), "action", "request"};
}

std::vector<Operation> Operations() {
  const Entry fresh = MakeTestEntry(100, 50000);
  return {
      {"open, first time", [](const std::string&) {},
       [](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         files.Arm(fault);
         (void)StoreDir::Open(root, With(files));
       }},
      {"open", PublishOld,
       [](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         files.Arm(fault);
         (void)StoreDir::Open(root, With(files));
       }},
      {"open with damaged counters",
       [](const std::string& root) {
         PublishOld(root);
         WriteText(root + "/v1/counters", "short");
       },
       [](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         files.Arm(fault);
         (void)StoreDir::Open(root, With(files));
       }},
      {"publish", PublishOld,
       [fresh](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         Run(root, files, fault,
             [&](StoreDir& dir) { (void)dir.Publish(fresh.action, fresh.bytes); });
       }},
      {"publish, durable", PublishOld,
       [fresh](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         StoreDir::Options options = With(files);
         options.durable = true;
         const auto dir = StoreDir::Open(root, options);
         files.Arm(fault);
         (void)dir->Publish(fresh.action, fresh.bytes);
       }},
      {"publish what is there", PublishOld,
       [](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         const Entry again = MakeTestEntry(0);
         Run(root, files, fault,
             [&](StoreDir& dir) { (void)dir.Publish(again.action, again.bytes); });
       }},
      {"publish in place of a damaged entry",
       [](const std::string& root) {
         PublishOld(root);
         Damage(root, 5);
       },
       [](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         const Entry again = MakeTestEntry(5);
         Run(root, files, fault,
             [&](StoreDir& dir) { (void)dir.Publish(again.action, again.bytes); });
       }},
      {"find a damaged entry: quarantine",
       [](const std::string& root) {
         PublishOld(root);
         Damage(root, 5);
       },
       [](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         Run(root, files, fault, [&](StoreDir& dir) { (void)dir.Find(MakeTestEntry(5).action); });
       }},
      {"publish a refusal", PublishOld,
       [fresh](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         Run(root, files, fault,
             [&](StoreDir& dir) { (void)dir.PublishNegative(fresh.action, Refusal()); });
       }},
      {"replace a refusal",
       [fresh](const std::string& root) {
         PublishOld(root);
         const auto dir = StoreDir::Open(root, With(SystemFilesystem()));
         (void)dir->PublishNegative(fresh.action, Refusal());
       },
       [fresh](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         Run(root, files, fault,
             [&](StoreDir& dir) { (void)dir.PublishNegative(fresh.action, Refusal()); });
       }},
      {"trim", PublishOld,
       [](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         StoreDir::Options options = With(files);
         options.max_entries = 4;
         const auto dir = StoreDir::Open(root, options);
         files.Arm(fault);
         (void)dir->Trim(true, false);
       }},
      {"sweep",
       [](const std::string& root) {
         PublishOld(root);
         Damage(root, 5);
         const auto dir = StoreDir::Open(root, With(SystemFilesystem()));
         (void)dir->Find(MakeTestEntry(5).action);
         WriteText(root + "/v1/tmp/somebody.else.1.0", "half");
         SetStamp(root + "/v1/tmp/somebody.else.1.0", 1000);
       },
       [](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         Run(root, files, fault, [&](StoreDir& dir) { (void)dir.Sweep(false); });
       }},
      {"remove", PublishOld,
       [](const std::string& root, FaultyFilesystem& files, const Fault& fault) {
         Run(root, files, fault, [&](StoreDir& dir) { (void)dir.Remove(MakeTestEntry(5).action); });
       }},
  };
}

/// What must hold whatever happened to the process before.
void ExpectSound(const std::string& root, const std::string& what, bool had_old) {
  const auto dir = StoreDir::Open(root, With(SystemFilesystem()));
  ASSERT_EQ(dir->state(), StoreDir::State::kReadWrite) << what << ": " << dir->reason();
  // Entry 5 is the one that the operations may remove; those of "trim" may go from the oldest on.
  const bool trims = what.starts_with("trim");
  int hits = 0;
  for (int i = 0; i < kOld; ++i) {
    const std::string seen = Look(*dir, MakeTestEntry(i));
    if (seen == "hit") ++hits;
    if (had_old && i != 5 && !trims) {
      EXPECT_EQ(seen, "hit") << what << ", entry " << i;
    }
    if (i != 5) {  // which was damaged before, and is perhaps found out only now
      EXPECT_FALSE(seen.starts_with("corrupt")) << what << ": " << seen;
    }
  }
  if (had_old && trims) {
    EXPECT_GE(hits, 3) << what;
  }
  const std::string fresh = Look(*dir, MakeTestEntry(100, 50000));
  EXPECT_TRUE(fresh == "hit" || fresh == "absent ") << what << ": " << fresh;
  const auto negative = dir->FindNegative(MakeTestEntry(100, 50000).action);
  if (negative) {
    EXPECT_EQ(negative->log, Refusal().log);
  }

  (void)dir->Sweep(false);
  EXPECT_TRUE(NamesIn(root + "/v1/tmp").empty()) << what << ": temporary files are left";
  // The store goes on: all can be stored, and is found.
  for (const Entry& entry : {MakeTestEntry(5), MakeTestEntry(100, 50000), MakeTestEntry(101)}) {
    std::string why;
    EXPECT_NE(dir->Publish(entry.action, entry.bytes, &why), StoreDir::Published::kNot)
        << what << ": " << why;
    EXPECT_EQ(Look(*dir, entry), "hit") << what;
  }
  dir->Count(3, 1);
  EXPECT_GE(dir->Counters()[3], 1u) << what;
  StoreDir::KeyLock lock;
  EXPECT_EQ(dir->TryLock(MakeTestEntry(7).action, lock), StoreDir::LockResult::kHeld) << what;
}

TEST(StoreDirCrash, KilledInsteadOfAnyCallOfAnyOperation) {
  for (const Operation& operation : Operations()) {
    for (const Fault::Kind kind : {Fault::kKill, Fault::kKillHalfway}) {
      int steps = 0;
      for (bool killed = true; killed; ++steps) {
        ASSERT_LT(steps, 400) << operation.name;
        const TempFolder folder(TempFolder::Place::kMemory);
        const std::string root = folder.Sub("store");
        operation.prepare(root);
        const bool had_old = std::filesystem::exists(root + "/v1/entries");
        Fault fault;
        fault.kind = kind;
        fault.step = steps + 1;
        if (kind == Fault::kKillHalfway) fault.only = FaultyFilesystem::Call::kWrite;
        const int status = InChild([&] {
          FaultyFilesystem files;
          operation.run(root, files, fault);
        });
        killed = WasKilled(status);
        ASSERT_TRUE(killed || EndedWell(status)) << operation.name << " step " << steps;
        ExpectSound(root, operation.name + ", killed at call " + std::to_string(steps + 1),
                    had_old);
        if (HasFailure()) return;
      }
      // A test that kills nobody would prove nothing.
      if (kind == Fault::kKill) {
        EXPECT_GT(steps, 4) << operation.name;
      }
    }
  }
}

TEST(StoreDirCrash, CountersAreKeptWhenTheProcessIsKilled) {
  const TempFolder folder;
  const std::string root = folder.Sub("store");
  for (int round = 0; round < 5; ++round) {
    const int status = InChild([&] {
      const auto dir = StoreDir::Open(root, With(SystemFilesystem()));
      for (int i = 0; i < 1000; ++i) dir->Count(7, 1);
      kill(getpid(), SIGKILL);
    });
    ASSERT_TRUE(WasKilled(status));
  }
  EXPECT_EQ(StoreDir::Open(root, With(SystemFilesystem()))->Counters()[7], 5000u);
}

}  // namespace
}  // namespace tilewright::test
