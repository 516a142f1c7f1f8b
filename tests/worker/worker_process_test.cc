// The process of a worker: how it is found, what it must answer, and that none outlives its parent.
#include <csignal>
#include <cstdlib>
#include <utility>

#include "worker/message.h"
#include "worker/process.h"
#include "worker_fixture.h"

namespace tilewright {
namespace {

using ::testing::HasSubstr;
using worker::Message;

class WorkerProcessTest : public WorkerTest {};

TEST_F(WorkerProcessTest, A_program_that_is_missing_is_named) {
  const Error missing = Refused({.program = folder_ + "/nothing"});
  EXPECT_EQ(missing.code, ErrorCode::kUnavailable);
  EXPECT_THAT(missing.message, HasSubstr(folder_ + "/nothing"));
  setenv("TILEWRIGHT_WORKER", (folder_ + "/elsewhere").c_str(), 1);
  EXPECT_THAT(Refused({}).message, HasSubstr(folder_ + "/elsewhere"));
  setenv("TILEWRIGHT_WORKER", TILEWRIGHT_TEST_WORKER, 1);
  EXPECT_EQ(Start({})->program(), TILEWRIGHT_TEST_WORKER);
  unsetenv("TILEWRIGHT_WORKER");
}

TEST_F(WorkerProcessTest, A_worker_of_another_build_or_protocol_is_refused_by_name) {
  const std::string other =
      worker::Encode({"hello", {std::string(worker::kProtocol), "tilewright 9 (f00d)"}}).value();
  const Error build = Refused({.program = Script("other", other)});
  EXPECT_EQ(build.code, ErrorCode::kUnsupported);
  EXPECT_THAT(build.message, HasSubstr("tilewright 9 (f00d)"));
  EXPECT_THAT(build.message, HasSubstr(std::string(Version())));
  const std::string newer = worker::Encode({"hello", {"4", "tilewright 9", "and more"}}).value();
  EXPECT_THAT(Refused({.program = Script("newer", newer)}).message, HasSubstr("protocol 4"));
}

TEST_F(WorkerProcessTest, What_is_no_worker_is_an_error_and_no_hang) {
  EXPECT_THAT(Refused({.program = Script("words", "Usage: something [OPTIONS]\n")}).message,
              HasSubstr("'Usage: something"));
  EXPECT_THAT(Refused({.program = Script("long", "TWWM\xff\xff\xff\xff")}).message,
              HasSubstr("4294967295 bytes"));
  EXPECT_THAT(
      Refused({.program = Script("reply", worker::Encode({"outcome", {}}).value())}).message,
      HasSubstr("answered 'outcome'"));
  EXPECT_THAT(Refused({.program = Script("silent", ""), .start_seconds = 0.3}).message,
              HasSubstr("did not answer within 0.3 s"));
  EXPECT_THAT(Refused({.program = Script("half", "TWWM\x08"), .start_seconds = 0.3}).message,
              HasSubstr("did not answer"));
  EXPECT_THAT(Refused({.program = "/bin/true"}).message, HasSubstr("ended with exit code 0"));
}

TEST_F(WorkerProcessTest, A_worker_that_dies_between_candidates_is_started_again) {
  const auto worker = Start();
  ASSERT_NE(worker, nullptr);
  auto measurer = Measuring(*worker);
  ASSERT_TRUE(measurer.Prepare(Norm()));
  const int pid = worker->pid();
  kill(pid, SIGKILL);
  ASSERT_TRUE(Ends(pid));
  EXPECT_EQ(measurer.Check(Spec(test::kRight)).verdict, Verdict::kOk);
  EXPECT_EQ(worker->counts().started, 2);
  EXPECT_EQ(worker->counts().ended, 0);
}

TEST_F(WorkerProcessTest, A_worker_ends_with_its_parent_even_in_the_middle_of_a_candidate) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    // A process of its own that dies while a kernel hangs.
    const auto context = Context::Create(Options("cpu"));
    const auto worker =
        context.value()->StartWorker(Quick(), {.program = TILEWRIGHT_TEST_WORKER}).value();
    int pid = worker->Prepare("norm", KeyOf(Norm())) ? worker->pid() : -1;
    if (write(ends[1], &pid, sizeof pid) == sizeof pid)
      static_cast<void>(worker->Check({test::kHangs, "1", "swizzle=0 splits=1"}));
    _exit(1);
  }
  close(ends[1]);
  int pid = -1;
  ASSERT_EQ(read(ends[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
  close(ends[0]);
  ASSERT_GT(pid, 0);
  EXPECT_NE(StateOf(pid), '\0');
  kill(parent, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(parent, &status, 0), parent);
  EXPECT_TRUE(Ends(pid)) << "the worker outlived its parent";
}

TEST_F(WorkerProcessTest, A_worker_whose_connection_closes_ends_by_itself) {
  auto process = worker::WorkerProcess::Start(TILEWRIGHT_WORKER_PROGRAM).value();
  EXPECT_TRUE(process->alive());
  const pid_t pid = process->pid();
  process.reset();
  EXPECT_EQ(StateOf(pid), '\0');
}

TEST_F(WorkerProcessTest, Requests_that_make_no_sense_are_answered_with_an_error) {
  const auto process = worker::WorkerProcess::Start(TILEWRIGHT_WORKER_PROGRAM).value();
  const auto ask = [&](Message message) {
    const auto answer = process->Exchange(message, 60);
    if (!answer.message) return answer.trouble;
    return answer.message->verb + ": " +
           (answer.message->words.empty() ? "" : answer.message->words.back());
  };
  EXPECT_EQ(ask({"dance", {}}), "error: 'dance' is no request");
  EXPECT_EQ(ask({"check", {"a", "b", "c"}}),
            "error: check: a candidate of a problem that was prepared is needed");
  EXPECT_EQ(ask({"prepare", {"norm", "rows=3 cols=64"}}), "error: prepare: no device is open");
  EXPECT_THAT(ask({"open", {"device"}}), HasSubstr("a name without a value"));
  EXPECT_THAT(ask({"open", {"colour", "red"}}), HasSubstr("unknown, 'red' of colour"));
  EXPECT_THAT(ask({"open", {"threads", "many"}}), HasSubstr("no such value, 'many' of threads"));
  EXPECT_THAT(ask({"open", {"device", "gpu"}}), HasSubstr("device 'gpu'"));
  EXPECT_THAT(ask({"open", {"device", "cpu", "threads", "1"}}), HasSubstr("opened: cpu/"));
  EXPECT_THAT(ask({"prepare", {"sort", "rows=3"}}), HasSubstr("'sort' is no operation"));
  EXPECT_THAT(ask({"prepare", {"norm", "rows=three"}}), HasSubstr("rows = 'three'"));
  EXPECT_EQ(ask({"prepare", {"norm", "rows=3 cols=64"}}), "prepared: ");
  EXPECT_EQ(ask({"check", {"norm.none", "", "swizzle=0 splits=1"}}), "unknown: ");
  EXPECT_THAT(ask({"time", {"norm.none", "", "swizzle=0 splits=1", "0"}}), HasSubstr("'0' repet"));
}

}  // namespace
}  // namespace tilewright
