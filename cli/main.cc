#include <fmt/format.h>

#include <exception>
#include <new>
#include <system_error>

#include "console.h"
#include "verbs.h"

int main(int argc, char** argv) {
  using tilewright::cli::Complain, tilewright::cli::ParseAndRun, tilewright::cli::SetUpProcess;
  SetUpProcess();
  // The library throws no exceptions, but the parser, the standard library and thread creation may.
  try {
    return ParseAndRun(argc, argv);
  } catch (const std::bad_alloc&) {
    Complain("out of memory");
  } catch (const std::exception& error) {
    Complain(fmt::format("stopped: {}", error.what()));
  }
  return tilewright::cli::kExitFailed;
}
