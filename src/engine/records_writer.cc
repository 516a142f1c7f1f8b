// Helper of records_test: writes batches of eight records to a file, as a tuning process would.
// Usage: PATH NAME BATCHES ACK_FD. The number of each committed batch goes to ACK_FD, an int32
// each; -1 = not reported.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tilewright/records.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  tilewright::Records records = tilewright::Records::Open(argv[1]);
  const int batches = std::atoi(argv[3]), ack_fd = std::atoi(argv[4]);
  for (int batch = 0; batch < batches; ++batch) {
    std::vector<tilewright::Record> rows(8);
    for (int i = 0; i < 8; ++i) {
      tilewright::Record& row = rows[static_cast<std::size_t>(i)];
      row.op = "gemm";
      row.problem = "batch=" + std::to_string(batch);
      row.kernel = "kernel" + std::to_string(i);
      row.evidence = argv[2];
      row.median_us = 1 + batch;
      row.samples = 5;
    }
    if (const auto stored = records.Append(rows); !stored) {
      std::fprintf(stderr, "%s\n", stored.error().message.c_str());
      return 1;
    }
    const std::int32_t number = batch;
    if (ack_fd >= 0 && write(ack_fd, &number, sizeof number) != sizeof number) return 4;
  }
  for (const std::string& warning : records.warnings())
    std::fprintf(stderr, "%s\n", warning.c_str());
  return records.GetStat().persistent ? 0 : 3;
}
