#include <gtest/gtest.h>

#include <filesystem>

#include "core/faulty_filesystem.h"
#include "dir_fixture.h"

/// Every error that a system call can return, at every call of every operation: nothing crashes,
/// nothing wrong is served or left behind, and only lasting errors make the folder read-only.

namespace tilewright::test {
namespace {

/// One of each way that the code treats an error, and those that it must not confuse.
const std::vector<int> kErrors = {ENOSPC, EROFS, EACCES, EMFILE, EIO, ESTALE, ENOENT, EEXIST};
const std::vector<int> kLastingErrors = {ENOSPC, EMFILE, EIO, EINTR};

bool Lasting(int error) {
  return error == ENOSPC || error == EDQUOT || error == EROFS || error == EACCES || error == EPERM;
}

struct Scene {
  TempFolder folder{TempFolder::Place::kMemory};
  std::string root = folder.Sub("store");
  FaultyFilesystem files;
  Entry there = MakeTestEntry(1), damaged = MakeTestEntry(2), fresh = MakeTestEntry(3, 40000);

  Scene() {
    const auto dir = StoreDir::Open(root, {});
    EXPECT_EQ(dir->Publish(there.action, there.bytes), StoreDir::Published::kNew);
    EXPECT_EQ(dir->Publish(damaged.action, damaged.bytes), StoreDir::Published::kNew);
    std::string bytes = damaged.bytes;
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    WriteText(EntryPath(root, damaged.action), bytes);
    const Entry old = MakeTestEntry(4);
    EXPECT_EQ(dir->Publish(old.action, old.bytes), StoreDir::Published::kNew);
    SetStamp(EntryPath(root, old.action), 1000);
    EXPECT_EQ(dir->PublishNegative(old.action, {"log", 1000, "a", "r"}), StoreDir::Published::kNew);
    WriteText(root + "/v1/tmp/other.host.1.0", "left");
    SetStamp(root + "/v1/tmp/other.host.1.0", 1000);
  }
  StoreDir::Options Options() {
    StoreDir::Options options;
    options.files = &files;
    options.max_entries = 2;
    options.max_bytes = 1 << 20;
    return options;
  }
};

struct Operation {
  std::string name;
  bool reopen;  ///< the fault is armed before the store is opened
  bool durable;
  std::function<void(Scene&, StoreDir&)> run;
};

void ExpectNothingWrong(StoreDir& dir, Scene& scene, const std::string& what) {
  for (const Entry* entry : {&scene.there, &scene.damaged, &scene.fresh}) {
    const StoreDir::Lookup lookup = dir.Find(entry->action);
    if (lookup.found) {
      EXPECT_EQ(lookup.found->bytes.view(), entry->bytes) << what;
    }
  }
}

std::vector<Operation> Operations() {
  const auto publish = [](const Entry& entry, StoreDir& dir) {
    std::string why;
    const auto published = dir.Publish(entry.action, entry.bytes, &why);
    EXPECT_EQ(published == StoreDir::Published::kNot, why != "") << why;
  };
  return {
      {"open", true, false, [](Scene&, StoreDir&) {}},
      {"find", false, false, [](Scene& scene, StoreDir& dir) { (void)Look(dir, scene.there); }},
      {"find damaged", false, false,
       [](Scene& scene, StoreDir& dir) { EXPECT_FALSE(dir.Find(scene.damaged.action).found); }},
      {"publish", false, false, [=](Scene& scene, StoreDir& dir) { publish(scene.fresh, dir); }},
      {"publish, durable", false, true,
       [=](Scene& scene, StoreDir& dir) { publish(scene.fresh, dir); }},
      {"publish what is there", false, false,
       [=](Scene& scene, StoreDir& dir) { publish(scene.there, dir); }},
      {"publish over a damaged one", false, false,
       [=](Scene& scene, StoreDir& dir) { publish(scene.damaged, dir); }},
      {"refusal", false, false,
       [](Scene& scene, StoreDir& dir) {
         (void)dir.PublishNegative(scene.fresh.action, {"log", time(nullptr), "a", "r"});
         (void)dir.FindNegative(scene.fresh.action);
       }},
      {"trim", false, false, [](Scene&, StoreDir& dir) { (void)dir.Trim(true, false); }},
      {"sweep", false, false, [](Scene&, StoreDir& dir) { (void)dir.Sweep(false); }},
      {"remove", false, false,
       [](Scene& scene, StoreDir& dir) { (void)dir.Remove(scene.fresh.action); }},
      {"count and lock", false, false,
       [](Scene& scene, StoreDir& dir) {
         dir.Count(0, 1);
         (void)dir.Counters();
         StoreDir::KeyLock lock;
         (void)dir.TryLock(scene.fresh.action, lock);
       }},
      {"list", false, false,
       [](Scene&, StoreDir& dir) {
         (void)dir.GetTotals();
         dir.ForEachNegative([](const ArtifactKey&, const StoreDir::Negative&) {});
       }},
  };
}

/// Runs the operation with the fault; false when it had no such step.
bool RunWith(const Operation& operation, const Fault& fault, const std::string& what) {
  Scene scene;
  StoreDir::Options options = scene.Options();
  options.durable = operation.durable;
  if (operation.reopen) scene.files.Arm(fault);
  auto dir = StoreDir::Open(scene.root, options);
  if (!operation.reopen) scene.files.Arm(fault);
  operation.run(scene, *dir);
  const bool fired = scene.files.fired() > 0;
  scene.files.Disarm();
  if (!fired) return false;

  if (dir->state() == StoreDir::State::kReadWrite) {
    EXPECT_EQ(dir->reason(), "") << what;
  } else {
    EXPECT_NE(dir->reason(), "") << what;
    if (!operation.reopen) {
      EXPECT_TRUE(Lasting(fault.error)) << what << ": " << dir->reason();
      EXPECT_EQ(dir->state(), StoreDir::State::kReadOnly) << what << ": " << dir->reason();
    }
  }
  ExpectNothingWrong(*dir, scene, what);

  // The next process finds a store that works, and everything is where it was.
  StoreDir::Options roomy = scene.Options();
  roomy.max_entries = 10;
  const auto next = StoreDir::Open(scene.root, roomy);
  EXPECT_EQ(next->state(), StoreDir::State::kReadWrite) << what << ": " << next->reason();
  ExpectNothingWrong(*next, scene, what);
  // Only an operation that evicts may cost the entry that was there.
  if (operation.name != "trim") {
    EXPECT_EQ(Look(*next, scene.there), "hit") << what;
  }
  (void)next->Trim(true, false);
  (void)next->Sweep(false);
  std::string why;
  EXPECT_NE(next->Publish(scene.fresh.action, scene.fresh.bytes, &why), StoreDir::Published::kNot)
      << what << ": " << why;
  EXPECT_EQ(Look(*next, scene.fresh), "hit") << what;
  return true;
}

void RunAll(Fault::Kind kind, bool lasting, const std::vector<int>& errors) {
  const int descriptors = OpenDescriptors();
  for (const Operation& operation : Operations()) {
    for (const int error : errors) {
      int step = 1;
      for (bool fired = true; fired; ++step) {
        ASSERT_LT(step, 300);
        Fault fault;
        fault.kind = kind;
        fault.error = error;
        fault.step = step;
        fault.lasting = lasting;
        fired = RunWith(operation, fault,
                        operation.name + ", " + strerrorname_np(error) + " at call " +
                            std::to_string(step) + (lasting ? " and all later ones" : ""));
        if (testing::Test::HasFailure()) return;
      }
      EXPECT_GT(step, 2) << operation.name << ": no step met the fault";
    }
  }
  EXPECT_EQ(OpenDescriptors(), descriptors);
}

TEST(StoreDirFaults, EachErrorOnceAtEachCall) { RunAll(Fault::kError, false, kErrors); }
TEST(StoreDirFaults, EachErrorFromEachCallOn) { RunAll(Fault::kError, true, kLastingErrors); }

TEST(StoreDirFaults, ALostReply) {
  RunAll(Fault::kErrorAfter, false, {EIO, ESTALE, EEXIST, ENOENT});
}

TEST(StoreDirFaults, ShortReadsAndWritesAreContinued) {
  Scene scene;
  auto options = scene.Options();
  options.max_entries = 0;
  const auto dir = StoreDir::Open(scene.root, options);
  Fault fault;
  fault.kind = Fault::kShort;
  fault.lasting = true;
  scene.files.Arm(fault);
  const Entry small = MakeTestEntry(9, 10);
  std::string why;
  EXPECT_EQ(dir->Publish(small.action, small.bytes, &why), StoreDir::Published::kNew) << why;
  EXPECT_EQ(Look(*dir, small), "hit");
}

TEST(StoreDirFaults, AWriteThatFailsHalfwayLeavesNoTemporaryFile) {
  for (const int error : {ENOSPC, EDQUOT, EIO, EFBIG}) {
    Scene scene;
    (void)StoreDir::Open(scene.root, {})->Sweep(false);
    auto options = scene.Options();
    options.max_entries = 0;
    const auto dir = StoreDir::Open(scene.root, options);
    Fault fault;
    fault.kind = Fault::kError;
    fault.only = FaultyFilesystem::Call::kWrite;
    fault.error = error;
    scene.files.Arm(fault);
    std::string why;
    EXPECT_EQ(dir->Publish(scene.fresh.action, scene.fresh.bytes, &why), StoreDir::Published::kNot);
    EXPECT_NE(why, "");
    EXPECT_TRUE(NamesIn(scene.root + "/v1/tmp").empty());
    scene.files.Disarm();
    const bool read_only = dir->state() == StoreDir::State::kReadOnly;
    EXPECT_EQ(read_only, Lasting(error)) << dir->reason();
    if (read_only) {
      // For the rest of the process, with the first reason; reading goes on.
      EXPECT_EQ(dir->Publish(scene.fresh.action, scene.fresh.bytes, &why),
                StoreDir::Published::kNot);
      EXPECT_EQ(why, dir->reason());
      EXPECT_EQ(Look(*dir, scene.there), "hit");
      StoreDir::KeyLock lock;
      EXPECT_EQ(dir->TryLock(scene.fresh.action, lock), StoreDir::LockResult::kUnusable)
          << "nobody should wait for what will not be published";
    } else {
      EXPECT_EQ(dir->Publish(scene.fresh.action, scene.fresh.bytes, &why),
                StoreDir::Published::kNew);
    }
  }
}

TEST(StoreDirFaults, WithoutDescriptorsTheFolderWorksAgainLater) {
  Scene scene;
  auto options = scene.Options();
  options.max_entries = 0;
  const auto dir = StoreDir::Open(scene.root, options);
  Fault fault;
  fault.kind = Fault::kError;
  fault.only = FaultyFilesystem::Call::kOpen;
  fault.error = EMFILE;
  fault.lasting = true;
  scene.files.Arm(fault);
  EXPECT_EQ(dir->Publish(scene.fresh.action, scene.fresh.bytes), StoreDir::Published::kNot);
  EXPECT_EQ(Look(*dir, scene.there).substr(0, 6), "absent");
  StoreDir::KeyLock lock;
  EXPECT_EQ(dir->TryLock(scene.fresh.action, lock), StoreDir::LockResult::kUnusable);
  scene.files.Disarm();
  EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite);
  EXPECT_EQ(dir->Publish(scene.fresh.action, scene.fresh.bytes), StoreDir::Published::kNew);
  EXPECT_EQ(Look(*dir, scene.there), "hit");
  EXPECT_EQ(dir->TryLock(scene.fresh.action, lock), StoreDir::LockResult::kHeld);
}

TEST(StoreDirFaults, AFileSystemWithoutLocksIsOnlySlower) {
  for (const int error : {ENOLCK, EOPNOTSUPP, EINVAL, ENOSYS}) {
    Scene scene;
    const auto dir = StoreDir::Open(scene.root, scene.Options());
    Fault fault;
    fault.kind = Fault::kError;
    fault.only = FaultyFilesystem::Call::kTryLock;
    fault.error = error;
    fault.lasting = true;
    scene.files.Arm(fault);
    StoreDir::KeyLock lock;
    EXPECT_EQ(dir->TryLock(scene.fresh.action, lock), StoreDir::LockResult::kUnusable);
    EXPECT_FALSE(lock.held());
    EXPECT_GT(dir->Trim(true, false).removed_entries, 0u);
    EXPECT_EQ(dir->state(), StoreDir::State::kReadWrite);
  }
}

TEST(StoreDirFaults, AReadOnlyFileSystemServesWhatItHas) {
  Scene scene;
  Fault fault;
  fault.kind = Fault::kError;
  fault.error = EROFS;
  fault.lasting = true;
  for (const auto call :
       {FaultyFilesystem::Call::kMakeDir, FaultyFilesystem::Call::kRenameNoReplace}) {
    fault.only = call;
    scene.files.Arm(fault);
    std::filesystem::remove_all(scene.root + "/v1/tmp");
    std::filesystem::remove(scene.root + "/v1/counters");
    const auto dir = StoreDir::Open(scene.root, scene.Options());
    EXPECT_EQ(dir->state(), StoreDir::State::kReadOnly) << dir->reason();
    EXPECT_NE(dir->reason().find("Read-only file system"), std::string::npos) << dir->reason();
    EXPECT_EQ(Look(*dir, scene.there), "hit");
    scene.files.Disarm();
  }
  // Nothing there, and nothing can be made.
  fault.only = FaultyFilesystem::Call::kMakeDir;
  scene.files.Arm(fault);
  const auto dir = StoreDir::Open(scene.folder.Sub("new/store"), scene.Options());
  EXPECT_EQ(dir->state(), StoreDir::State::kReadOnly);
  EXPECT_EQ(Look(*dir, scene.there), "absent ");
}

}  // namespace
}  // namespace tilewright::test
