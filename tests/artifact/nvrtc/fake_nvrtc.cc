// A library with NVRTC's functions that compiles nothing: the first line of the source says what it
// returns.
//   fake: result N    nvrtcCompileProgram returns N, with a log
//   fake: refuses     nvrtcCompileProgram returns 6, with the lines that follow for a log
//   fake: hang        returns when the flow callback says so (after 20 s in any case)
//   fake: threads     asks the flow callback from four threads at once
//   fake: log N       succeeds with a log of N bytes
//   fake: no cubin    succeeds without machine code
// Anything else succeeds, and the cubin tells what was given: name, options, headers, source.
// FAKE_MAJOR, FAKE_MINOR: its version. FAKE_NO_CUBIN_FUNCTION, FAKE_NO_FLOW: functions left out.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using Callback = int (*)(void*, void*);

struct Program {
  std::string given, source, log, ptx, cubin;
  Callback callback = nullptr;
  void* payload = nullptr;
};

Program& Of(void* program) { return *static_cast<Program*>(program); }

int Hang(Program& program) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < end) {
    if (program.callback != nullptr && program.callback(program.payload, nullptr) == 1) {
      // It must say the same from now on.
      for (int i = 0; i < 3; ++i)
        if (program.callback(program.payload, nullptr) != 1) return 11;
      return 16;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return 11;
}

int AskFromThreads(Program& program) {
  std::atomic<int> yes{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) yes += program.callback(program.payload, nullptr);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return yes == 0 ? 0 : 16;
}

int Copy(const std::string& text, char* out) {
  std::memcpy(out, text.data(), text.size());
  return 0;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NVRTC's names.
FAKE_EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = FAKE_MAJOR;
  *minor = FAKE_MINOR;
  return 0;
}

FAKE_EXPORT const char* nvrtcGetErrorString(int result) {
  return result == 6 ? "FAKE_ERROR_COMPILATION" : "FAKE_ERROR";
}

FAKE_EXPORT int nvrtcCreateProgram(void** out, const char* source, const char* name, int headers,
                                   const char* const* texts, const char* const* names) {
  auto* program = new Program;
  program->source = source;
  program->given = std::string("unit ") + name + "\n";
  for (int i = 0; i < headers; ++i)
    program->given += std::string("header ") + names[i] + "\n" + texts[i] + "\n";
  *out = program;
  return 0;
}

FAKE_EXPORT int nvrtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}

#ifndef FAKE_NO_FLOW
FAKE_EXPORT int nvrtcSetFlowCallback(void* program, Callback callback, void* payload) {
  Of(program).callback = callback;
  Of(program).payload = payload;
  return 0;
}
#endif

FAKE_EXPORT int nvrtcCompileProgram(void* handle, int options, const char* const* words) {
  Program& program = Of(handle);
  for (int i = 0; i < options; ++i) program.given += std::string("option ") + words[i] + "\n";
  const std::string& source = program.source;
  const auto number = [&](std::size_t at) { return std::atoi(source.c_str() + at); };
  int result = 0;
  if (source.rfind("fake: result ", 0) == 0) {
    result = number(13);
    program.log = "a remark\nfake.cu(1): error: asked for result " + std::to_string(result) + "\n";
  } else if (source.rfind("fake: refuses\n", 0) == 0) {
    result = 6;
    program.log = source.substr(14);
  } else if (source.rfind("fake: hang", 0) == 0) {
    result = Hang(program);
  } else if (source.rfind("fake: threads", 0) == 0) {
    result = AskFromThreads(program);
  } else if (source.rfind("fake: log ", 0) == 0) {
    program.log = std::string(static_cast<std::size_t>(number(10)), 'x');
  }
  if (result != 0) return result;
  program.ptx = "// fake\n";
  if (source.rfind("fake: no cubin", 0) != 0) program.cubin = program.given + source;
  return 0;
}

FAKE_EXPORT int nvrtcGetProgramLogSize(void* program, std::size_t* bytes) {
  *bytes = Of(program).log.size() + 1;
  return Of(program).source.rfind("fake: no log", 0) == 0 ? 1 : 0;
}
FAKE_EXPORT int nvrtcGetProgramLog(void* program, char* out) {
  out[Of(program).log.size()] = '\0';
  return Copy(Of(program).log, out);
}
FAKE_EXPORT int nvrtcGetPTXSize(void* program, std::size_t* bytes) {
  *bytes = Of(program).ptx.size() + 1;
  return 0;
}
FAKE_EXPORT int nvrtcGetPTX(void* program, char* out) {
  out[Of(program).ptx.size()] = '\0';
  return Copy(Of(program).ptx, out);
}
FAKE_EXPORT int nvrtcGetCUBINSize(void* program, std::size_t* bytes) {
  *bytes = Of(program).cubin.size();
  return 0;
}
#ifndef FAKE_NO_CUBIN_FUNCTION
FAKE_EXPORT int nvrtcGetCUBIN(void* program, char* out) { return Copy(Of(program).cubin, out); }
#endif
// NOLINTEND(readability-identifier-naming)
