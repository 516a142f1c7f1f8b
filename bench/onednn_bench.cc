// Speed of oneDNN's matmul, the baseline of the GEMM kernels: weights in the layout that oneDNN
// likes best (format any, packed before the measurement), cold (rotated over copies of --rotate bytes
// together), f32 out.
//
//   onednn_bench --threads 2 --type f32|bf16|int8 --m 1,512 --n 3072 --k 576 [--samples 15]
//                [--rotate BYTES]
// prints one JSON object a line: m, n, k, type, us_median, us_min, us_max, implementation.
//
// int8 is u8 activations times s8 weights without any scales: less work than block formats ask for,
// so a baseline that flatters oneDNN there. bf16 takes activations that are bf16 already.

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace {

using dnnl::memory;

struct Options {
  int threads = 1;
  std::string type = "f32";
  std::vector<int> m = {1, 512};
  int n = 3072, k = 576, samples = 15;
  double rotate = 512e6;
};

std::vector<int> Numbers(const char* text) {
  std::vector<int> numbers;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');)
    numbers.push_back(std::atoi(part.c_str()));
  return numbers;
}

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Small numbers: 0x3c.. patterns are finite in every type here. By all threads, since gigabytes are touched for the first time.
void Fill(const memory& target) {
  constexpr std::int64_t kPage = 4096;
  char* const to = static_cast<char*>(target.get_data_handle());
  const auto bytes = static_cast<std::int64_t>(target.get_desc().get_size());
#pragma omp parallel for schedule(static)
  for (std::int64_t at = 0; at < bytes; at += kPage)
    std::memset(to + at, 0x3c, static_cast<std::size_t>(std::min(kPage, bytes - at)));
}

void Measure(const Options& o, int m, dnnl::engine& engine, dnnl::stream& stream) {
  using Type = memory::data_type;
  using Tag = memory::format_tag;
  const bool i8 = o.type == "int8";
  const Type a_type = i8 ? Type::u8 : o.type == "bf16" ? Type::bf16 : Type::f32;
  const Type b_type = i8 ? Type::s8 : a_type;
  const memory::desc a({m, o.k}, a_type, Tag::ab), b({o.k, o.n}, b_type, Tag::any),
      d({m, o.n}, Type::f32, Tag::ab);
  const dnnl::matmul::primitive_desc chosen(dnnl::matmul::desc(a, b, d), engine);
  const dnnl::matmul matmul(chosen);
  const memory src(a, engine), dst(d, engine);
  Fill(src);
  const double bytes = static_cast<double>(chosen.weights_desc().get_size());
  const auto copies = static_cast<std::size_t>(o.rotate / bytes) + 1;
  std::vector<memory> weights;
  for (std::size_t i = 0; i < copies; ++i) {
    weights.emplace_back(chosen.weights_desc(), engine);
    Fill(weights.back());
  }
  std::size_t at = 0;
  const auto pass = [&](int reps) {
    const double start = Now();
    for (int i = 0; i < reps; ++i, at = (at + 1) % copies)
      matmul.execute(stream,
                     {{DNNL_ARG_SRC, src}, {DNNL_ARG_WEIGHTS, weights[at]}, {DNNL_ARG_DST, dst}});
    stream.wait();
    return (Now() - start) / reps * 1e6;
  };
  pass(2);
  const int reps = std::clamp(static_cast<int>(2000 / pass(1)), 1, 10000);  // about 2 ms a sample
  std::vector<double> us;
  for (int i = 0; i < o.samples; ++i) us.push_back(pass(reps));
  std::sort(us.begin(), us.end());
  fmt::print(
      R"({{"m":{},"n":{},"k":{},"type":"{}","us_median":{:.2f},"us_min":{:.2f},"us_max":{:.2f},"implementation":"{}"}})"
      "\n",
      m, o.n, o.k, o.type, us[us.size() / 2], us.front(), us.back(), chosen.impl_info_str());
}

int Main(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--threads") o.threads = std::atoi(value);
    if (name == "--type") o.type = value;
    if (name == "--m") o.m = Numbers(value);
    if (name == "--n") o.n = std::atoi(value);
    if (name == "--k") o.k = std::atoi(value);
    if (name == "--samples") o.samples = std::max(1, std::atoi(value));
    if (name == "--rotate") o.rotate = std::atof(value);
  }
  omp_set_num_threads(o.threads);
  try {
    dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    dnnl::stream stream(engine);
    for (const int m : o.m) Measure(o, m, engine, stream);
  } catch (const dnnl::error& error) {
    fmt::print(stderr, "onednn_bench: {}: {}\n", o.type, error.message);
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
