#include "console.h"
#include "verbs.h"

int main(int argc, char** argv) {
  tilewright::cli::SetUpProcess();
  return tilewright::cli::ParseAndRun(argc, argv);
}
