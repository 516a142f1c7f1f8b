// Damaged models of every architecture load or are refused:
//
//     mutated_models FOLDER [COUNT [SEED [FIRST]]]
//
// takes the files in FOLDER in turn (model_seeds makes them), changes each copy at random, loads it as
// every architecture and, where it still is a model, runs a pass. A crash, or a file that takes 20 s,
// ends with exit 1 and the command that repeats it. Prints how many files of each model were changed
// and how many of these ran; bench/record/record_mutations.py records that.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "core/random.h"
#include "tilewright/tilewright.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace tilewright {
namespace {

using Bytes = std::vector<std::uint8_t>;

struct Seed {
  std::string name;
  Bytes bytes;
  std::vector<std::size_t> values;  ///< where a key or the name of a tensor ends
};

/// Behind each name stand a type and a value, or dimensions, a type and a place.
std::vector<std::size_t> EndsOfNames(const Bytes& bytes) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 24; at + 8 < bytes.size(); ++at) {
    std::uint64_t length = 0;
    std::memcpy(&length, &bytes[at], 8);
    if (length < 4 || length > 64 || at + 8 + length + 16 > bytes.size()) continue;
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at) + 8;
    const auto end = begin + static_cast<std::ptrdiff_t>(length);
    const auto of_name = [](std::uint8_t c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    };
    if (std::all_of(begin, end, of_name)) ends.push_back(at + 8 + length);
  }
  return ends;
}

std::vector<Seed> ReadSeeds(const std::string& folder) {
  std::vector<Seed> seeds;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    Seed seed{.name = entry.path().filename().string(),
              .bytes = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()},
              .values = {}};
    seed.values = EndsOfNames(seed.bytes);
    if (!seed.values.empty()) seeds.push_back(std::move(seed));
  }
  std::ranges::sort(seeds, {}, &Seed::name);
  return seeds;
}

constexpr std::uint64_t kOdd[] = {0,
                                  1,
                                  2,
                                  3,
                                  7,
                                  8,
                                  0x7f,
                                  0xff,
                                  0x7fff,
                                  0xffff,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  0x7f800000,
                                  0x7fc00000,
                                  0xff800000,
                                  0x3f800000,
                                  0x7fffffffffffffff,
                                  std::numeric_limits<std::uint64_t>::max()};

void Mutate(const Seed& seed, Random& random, Bytes& bytes) {
  const std::size_t header = seed.values.back() + 32;
  const auto below = [&](std::size_t limit) {
    return static_cast<std::size_t>(random.Below(std::max<std::uint64_t>(limit, 1)));
  };
  for (std::uint64_t left = 1 + random.Below(3); left > 0; --left) {
    const std::size_t end = std::min(header, bytes.size());
    if (end < 32) return;
    switch (random.Below(6)) {
      case 0:  // a value of a key, or a dimension, type or place of a tensor
      case 1: {
        const std::size_t at = seed.values[below(seed.values.size())] + 4 * below(8);
        const std::uint64_t value = kOdd[below(std::size(kOdd))];
        const std::size_t width = random.Below(2) == 0 ? 4 : 8;
        if (at + width <= bytes.size()) std::memcpy(&bytes[at], &value, width);
        break;
      }
      case 2: {  // a bit of such a place
        const std::size_t at = seed.values[below(seed.values.size())] + below(32);
        if (at < bytes.size()) bytes[at] ^= static_cast<std::uint8_t>(1u << random.Below(8));
        break;
      }
      case 3:
        bytes[below(end)] = static_cast<std::uint8_t>(random.Next());
        break;
      case 4: {  // a piece of the header over another one
        const std::size_t size = 1 + below(48), from = below(end), to = below(end);
        const std::size_t most = std::min({size, end - from, end - to});
        std::memmove(&bytes[to], &bytes[from], most);
        break;
      }
      default:
        if (random.Below(8) == 0) bytes.resize(below(bytes.size()));
    }
  }
}

/// Loads and runs what may be a model; whether it gave logits. Errors are fine.
bool Use(const Bytes& bytes, const std::string& path, Context& context) {
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  const auto dispatch = context.MakeDispatch();
  ModelOptions load;
  load.packer = dispatch.get();
  const auto model = Model::Load(path, load);
  if (!model) return false;
  SessionOptions options = context.DefaultSession();
  options.context = 32;
  const auto session = Session::Create(**model, *dispatch, options);
  if (!session) return false;
  const TokenId tokens[] = {1, 2, 0};
  return (*session)->Prefill(tokens, 0, 0).has_value();
}

/// Shared with the processes that do the work.
struct Progress {
  static constexpr std::size_t kMostSeeds = 256;

  std::uint64_t at;               ///< the file in work
  std::uint64_t ran[kMostSeeds];  ///< by seed: files that were models and gave logits
  double slowest;                 ///< seconds

  std::uint64_t AllThatRan() const {
    return std::accumulate(std::begin(ran), std::end(ran), std::uint64_t{0});
  }
};

/// Files `from` to `to`; in a process of its own, which may crash.
int RunRange(const std::vector<Seed>& seeds, std::uint64_t seed, std::uint64_t from,
             std::uint64_t to, Progress& progress) {
  char folder[] = "/tmp/tilewright-mutated-XXXXXX";
  if (mkdtemp(folder) == nullptr) return 2;
  ContextOptions options;
  options.threads = 1;
  options.cache_dir = std::string(folder) + "/cache";
  const auto context = Context::Create(options);
  if (!context) return 2;
  for (std::uint64_t i = from; i < to; ++i) {
    progress.at = i;
    const Seed& source = seeds[i % seeds.size()];
    Random random(seed * 1000003 + i);
    Bytes bytes = source.bytes;
    Mutate(source, random, bytes);
    alarm(20);
    const auto start = std::chrono::steady_clock::now();
    if (Use(bytes, std::string(folder) + "/model.gguf", **context))
      ++progress.ran[i % seeds.size()];
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    progress.slowest = std::max(progress.slowest, took.count());
  }
  alarm(0);
  std::filesystem::remove_all(folder);
  return 0;
}

int Main(int argc, char** argv) {
  if (argc < 2 || argc > 5) {
    std::fprintf(stderr, "usage: mutated_models FOLDER [COUNT [SEED [FIRST]]]\n");
    return 2;
  }
  const auto number = [&](int index, std::uint64_t otherwise) {
    return argc > index ? std::strtoull(argv[index], nullptr, 10) : otherwise;
  };
  const std::uint64_t count = number(2, 10000), seed = number(3, 1), first = number(4, 0);
  const std::vector<Seed> seeds = ReadSeeds(argv[1]);
  if (seeds.empty() || seeds.size() > Progress::kMostSeeds) {
    std::fprintf(stderr, "mutated_models: %zu models in %s, must be 1 to %zu\n", seeds.size(),
                 argv[1], Progress::kMostSeeds);
    return 2;
  }
  auto* progress = static_cast<Progress*>(
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (progress == MAP_FAILED) return 2;
  constexpr std::uint64_t kBatch = 5000;
  for (std::uint64_t from = first; from < first + count; from += kBatch) {
    const pid_t child = fork();
    if (child == 0)
      _exit(RunRange(seeds, seed, from, std::min(from + kBatch, first + count), *progress));
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    std::fprintf(stderr, "mutated_models: %s by file %llu of %s: mutated_models %s 1 %llu %llu\n",
                 WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "failed",
                 static_cast<unsigned long long>(progress->at),
                 seeds[progress->at % seeds.size()].name.c_str(), argv[1],
                 static_cast<unsigned long long>(seed),
                 static_cast<unsigned long long>(progress->at));
    return 1;
  }
  const std::uint64_t ran = progress->AllThatRan();
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    // Of the numbers from `first` on, those whose remainder is i.
    const std::uint64_t files = (first + count + seeds.size() - 1 - i) / seeds.size() -
                                (first + seeds.size() - 1 - i) / seeds.size();
    std::printf("%s: %llu files, %llu ran\n", seeds[i].name.c_str(),
                static_cast<unsigned long long>(files),
                static_cast<unsigned long long>(progress->ran[i]));
  }
  std::printf("%llu mutated files of %zu models, %llu ran, the slowest took %.3f s\n",
              static_cast<unsigned long long>(count), seeds.size(),
              static_cast<unsigned long long>(ran), progress->slowest);
  // Where nothing loads, or everything, the changes miss what they are to hit.
  return count < 1000 || (ran > 0 && ran < count) ? 0 : 1;
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) { return tilewright::Main(argc, argv); }
