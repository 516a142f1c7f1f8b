// Writes the tables of docs/formats.md from what the code states, or checks them:
//
//     document_tables FILE           put the tables between their comments
//     document_tables --check FILE   exit 1 if they are not there as they would be written
//
// Nothing runs: descriptors of formats, and what kernels say of themselves.
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/formats.h"
#include "core/text.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

std::string FactorText(Factor factor) {
  switch (factor) {
    case Factor::kNone:
      return "none";
    case Factor::kF16:
      return "f16";
    case Factor::kF16TimesInt:
      return "f16 x integer";
    case Factor::kPowerOfTwo:
      return "power of two";
  }
  return "";
}

std::string TableOfFormats() {
  std::string table =
      "| type | GGUF number | values of a block | bytes | bits a value | code | zero | scale | "
      "minimum | values that share them |\n|---|---|---|---|---|---|---|---|---|---|\n";
  for (const BlockFormat& f : kFormats) {
    table += Format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", f.name, f.gguf_type,
                    f.elements, f.bytes, 8.0 * f.bytes / f.elements, Format("{} bits", f.code_bits),
                    f.has_table ? std::string("table") : std::to_string(f.zero),
                    FactorText(f.scale), FactorText(f.min), f.sub_block);
  }
  return table;
}

/// A device and the kernels that it would choose from.
struct Column {
  std::string title;
  DeviceSpec device;
  const Kernels* kernels;
};

using Roundings = std::array<bool, 4>;  // by Precision

/// What the own kernels of a CPU for weights of `weights` round activations to, in whatever layout
/// they read them. The reference kernels, which take everything, are left out.
Roundings OfKernels(const Column& column, DataType weights) {
  Roundings rounds_to{};
  for (const Kernel* kernel : column.kernels->of<GemmOp>().kernels()) {
    const KernelInfo& info = kernel->info();
    const KernelDesc& desc = kernel->desc();
    if (info.provider != Provider::kOwn || info.reference || !column.device.Has(info.features) ||
        (desc.type_b & Bit(weights)) == 0 || (desc.quant_b & Bit(QuantType::kNone)) == 0) {
      continue;
    }
    rounds_to[static_cast<std::size_t>(desc.activations)] = true;
  }
  return rounds_to;
}

/// The same of a GPU, whose weights lie as in the file: by the kernels that take a product of one
/// or of many rows.
Roundings OfCandidates(const Column& column, DataType weights) {
  Roundings rounds_to{};
  for (const DataType activations : {DataType::kF32, DataType::kBF16}) {
    for (const int m : {1, 512}) {
      GemmDesc desc;
      desc.m = m, desc.n = 1024, desc.k = 1024;
      desc.type_a = desc.type_c = activations, desc.type_b = weights;
      desc.precision = Precision::kI8;
      desc.align_a = desc.align_b = desc.align_c = 4;
      FeasibleOptions limits;
      limits.partials_bytes = PartialsLimit(column.device);
      limits.providers = Bit(Provider::kOwn);
      const auto checked = Validate(desc);
      if (!checked) continue;
      const auto candidates =
          Feasible(*checked, column.kernels->of<GemmOp>(), column.device, limits);
      for (const Candidate<GemmOp>& candidate : candidates.all()) {
        if (!candidate.feasible()) continue;
        const bool narrow = activations == DataType::kBF16;
        const Precision at_most = candidate.kernel->desc().activations;
        rounds_to[static_cast<std::size_t>(narrow && at_most == Precision::kF32 ? Precision::kBF16
                                                                                : at_most)] = true;
      }
    }
  }
  return rounds_to;
}

std::string Products(const Column& column, DataType weights) {
  const bool gpu = column.device.kind == DeviceKind::kCuda;
  const Roundings rounds_to = gpu ? OfCandidates(column, weights) : OfKernels(column, weights);
  std::string text;
  constexpr std::string_view kNames[] = {"", "f32", "bf16", "int8"};
  for (std::size_t i = 1; i < std::size(kNames); ++i) {
    if (rounds_to[i]) text.append(text.empty() ? "" : ", ").append(kNames[i]);
  }
  return text.empty() ? "no" : text;
}

std::string Lookup(const Column& column, DataType weights) {
  const embedding::Desc desc{.type_table = weights, .rows = 1, .hidden = 256};
  const auto checked = Validate(desc);
  if (!checked) return "no";
  const auto candidates =
      Feasible(*checked, column.kernels->of<embedding::Op>(), column.device, FeasibleOptions{});
  return candidates.feasible_count() > 0 ? "yes" : "no";
}

DeviceSpec Cpu(std::uint32_t features, Isa isa) {
  DeviceSpec device;
  device.features = features, device.isa = isa;
  return device;
}

DeviceSpec Gpu(int compute_capability, std::int64_t smem_bytes) {
  DeviceSpec device;
  device.kind = DeviceKind::kCuda;
  device.compute_capability = compute_capability;
  device.sm_count = 100;
  device.smem_bytes = smem_bytes;
  return device;
}

std::string TableOfProducts(const std::vector<Column>& columns) {
  std::string table = "| weights |", line = "|---|";
  for (const Column& column : columns) table += Format(" {} |", column.title), line += "---|";
  table += " embedding, CPU | embedding, GPU |\n" + line + "---|---|\n";
  std::vector<DataType> types = {DataType::kF32, DataType::kF16, DataType::kBF16};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  for (const DataType type : types) {
    table += Format("| {} |", DataTypeName(type));
    for (const Column& column : columns) table += Format(" {} |", Products(column, type));
    table += Format(" {} | {} |\n", Lookup(columns.front(), type), Lookup(columns.back(), type));
  }
  return table;
}

/// Puts `table` between the comments of `name`; false where the page lacks them.
bool Replace(std::string& page, std::string_view name, const std::string& table) {
  const std::string begin = Format("<!-- table of {} -->\n", name), end = "<!-- end of table -->\n";
  const std::size_t from = page.find(begin);
  const std::size_t to = from == std::string::npos ? from : page.find(end, from);
  if (to == std::string::npos) return false;
  page.replace(from + begin.size(), to - from - begin.size(), table);
  return true;
}

int Complain(const std::string& text) {
  std::fprintf(stderr, "document_tables: %s\n", text.c_str());
  return 1;
}

int UpdatePage(const std::filesystem::path& path, bool check) {
  std::ifstream file(path);
  const std::string was{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || was.empty()) return Complain("cannot read " + path.string());
  file.close();

  ArtifactStoreOptions options;
  options.root = (std::filesystem::temp_directory_path() / "tilewright_document_tables").string();
  options.mode = CacheMode::kReadonly;  // nothing is bound, so nothing is compiled
  const auto store = ArtifactStore::Open(AllKernelFamilies(), options);
  if (!store) return Complain(store.error().message);
  const auto cpu = MakeCpuKernels();
  const auto ampere = MakeCudaKernels(**store, NativeArch(80));
  const auto hopper = MakeCudaKernels(**store, NativeArch(90));
  if (!ampere) return Complain(ampere.error().message);
  if (!hopper) return Complain(hopper.error().message);
  constexpr std::uint32_t kVnni = kFeatureAvx2 | kFeatureAvx512 | kFeatureAvx512Vnni;
  const std::vector<Column> columns = {
      {"CPU, scalar", Cpu(0, Isa::kScalar), cpu.get()},
      {"CPU, AVX2", Cpu(kFeatureAvx2, Isa::kAvx2), cpu.get()},
      {"CPU, AVX-512 and VNNI", Cpu(kVnni, Isa::kAvx512), cpu.get()},
      {"GPU, 8.0", Gpu(80, 163 << 10), ampere->get()},
      {"GPU, 9.0", Gpu(90, 227 << 10), hopper->get()},
  };
  std::string page = was;
  if (!Replace(page, "formats", TableOfFormats()) ||
      !Replace(page, "products", TableOfProducts(columns))) {
    return Complain(path.string() + " lacks the comments around a table");
  }
  if (page == was) return 0;
  if (check) return Complain(path.string() + " is not what the code states: make tables writes it");
  std::ofstream out(path, std::ios::trunc);
  out << page;
  return out.flush() ? 0 : Complain("cannot write " + path.string());
}

}  // namespace
}  // namespace tilewright

int main(int argc, char** argv) {
  const bool check = argc == 3 && std::string_view(argv[1]) == "--check";
  if (argc != 2 && !check) {
    std::fprintf(stderr, "usage: document_tables [--check] docs/formats.md\n");
    return 2;
  }
  return tilewright::UpdatePage(argv[argc - 1], check);
}
