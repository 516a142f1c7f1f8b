// The worker: a process in which the tuner tries candidates (tilewright/worker.h).

#include <unistd.h>

#include "tilewright/tilewright.h"

int main() {
  constexpr char kHint[] =
      "tilewright-worker is started by tilewright tune and bench gemm (docs/worker.md)\n";
  constexpr int kUsage = 2;
  if (isatty(STDIN_FILENO) != 0)
    _exit(write(STDERR_FILENO, kHint, sizeof kHint - 1) > 0 ? kUsage : 1);
  _exit(tilewright::ServeMeasurements());
}
