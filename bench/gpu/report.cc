#include "gpu/report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/text.h"
#include "gpu/cublaslt.h"

namespace tilewright::gpu_check {
namespace {

using Json = nlohmann::json;

/// JSON has no infinity; a wrong element may be that far off.
double Finite(double value) {
  return std::isfinite(value) ? value : std::numeric_limits<double>::max();
}

Json ToJson(const KernelOutcome& outcome) {
  Json cases = Json::array();
  for (const CaseReport& one : outcome.report.cases) {
    cases.push_back({{"shape", one.shape},
                     {"compared", one.compared},
                     {"rel_l2", Finite(one.rel_l2)},
                     {"limit", one.limit},
                     {"worst_of_allowed", Finite(one.worst)},
                     {"repeatable", one.repeatable},
                     {"trouble", one.trouble}});
  }
  Json times = Json::array();
  for (const TimeReport& one : outcome.report.times) {
    times.push_back({{"shape", one.shape},
                     {"how", one.how},
                     {"us", one.us},
                     {"us_again", one.us_again},
                     {"bytes", one.bytes},
                     {"flops", one.flops},
                     {"unit", one.unit},
                     {"cublaslt_us", one.cublaslt_us},
                     {"beside_us", one.beside_us}});
  }
  const ResourceUsage& used = outcome.resources;
  const std::optional<std::uint64_t> spills = used.SpillBytes();
  return {{"spec", outcome.spec},
          {"passed", outcome.Passed()},
          {"trouble", outcome.trouble},
          {"request", outcome.request},
          {"compiler", outcome.compiler},
          {"cubin_bytes", outcome.cubin_bytes},
          {"threads", outcome.threads},
          {"registers", used.registers},
          {"static_smem_bytes", used.static_smem_bytes},
          {"dynamic_smem_bytes", outcome.dynamic_smem_bytes},
          {"stack_bytes", used.stack_bytes},
          {"spill_bytes", spills ? Json(*spills) : Json(nullptr)},
          {"ctas_per_sm", outcome.occupancy},
          {"cases", cases},
          {"times", times}};
}

double WorstRelL2(const KernelOutcome& outcome, double& limit) {
  double worst = 0;
  double share = -1;
  for (const CaseReport& one : outcome.report.cases) {
    const double of_limit = one.limit > 0 ? one.rel_l2 / one.limit : 0;
    if (!(of_limit > share)) continue;
    share = of_limit;
    worst = one.rel_l2;
    limit = one.limit;
  }
  return worst;
}

std::string FirstTrouble(const KernelOutcome& outcome) {
  if (!outcome.trouble.empty()) return outcome.trouble;
  for (const CaseReport& one : outcome.report.cases) {
    if (!one.trouble.empty()) return one.shape + ": " + one.trouble;
  }
  return "";
}

/// The rate of whichever bounds it, bytes or operations.
std::string Rate(const TimeReport& time, const DeviceFacts& device) {
  const double bytes_us = device.copy_gb_s > 0 ? time.bytes / device.copy_gb_s / 1e3 : 0;
  if (FloorUs(time, device) > bytes_us) {
    return Format("{:.0f} TFLOP/s", time.flops / time.us / 1e6);
  }
  return Format("{:.3f} TB/s", time.bytes / time.us / 1e6);
}

std::string OfFloor(const TimeReport& time, const DeviceFacts& device) {
  const double floor = FloorUs(time, device);
  return floor > 0 ? Format("{:.0f} %", 100 * floor / time.us) : "-";
}

std::string AgainstCublasLt(const TimeReport& time) {
  if (time.cublaslt_us <= 0) return "- | -";
  return Format("{:.2f} | {:.2f}x", time.cublaslt_us, time.cublaslt_us / time.beside_us);
}

std::string Today() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char text[32];
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string Environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

/// The command line without the folders of this machine.
std::string Shown(const std::vector<std::string>& command) {
  std::string line;
  for (const std::string& word : command) {
    const bool is_path = word.find('/') != std::string::npos;
    line += (line.empty() ? "" : " ") +
            (is_path ? std::filesystem::path(word).filename().string() : word);
  }
  return line;
}

}  // namespace

bool KernelOutcome::Passed() const {
  return trouble.empty() && !report.cases.empty() &&
         std::all_of(report.cases.begin(), report.cases.end(),
                     [](const CaseReport& one) { return one.trouble.empty(); });
}

void Describe(const ArtifactData& artifact, KernelOutcome& outcome) {
  outcome.request = artifact.request.Hex();
  outcome.compiler = artifact.compiler.ToString();
  outcome.resources = artifact.resources;
  outcome.dynamic_smem_bytes = artifact.launch.dynamic_smem_bytes;
  outcome.threads = artifact.launch.threads;
  outcome.cubin_bytes = artifact.cubin.size();
}

std::string OutcomeJson(const KernelOutcome& outcome) { return ToJson(outcome).dump(); }

void TakeOutcome(const std::string& json, const std::string& death, KernelOutcome& outcome) {
  const Json all = Json::parse(json, nullptr, false);
  if (all.is_discarded() || !all.is_object()) {
    outcome.trouble = death.empty() ? "its process printed no report: " + json : death;
    return;
  }
  outcome.trouble = all.value("trouble", "");
  if (!death.empty() && outcome.trouble.empty()) outcome.trouble = death;
  outcome.request = all.value("request", "");
  outcome.compiler = all.value("compiler", "");
  outcome.cubin_bytes = all.value("cubin_bytes", std::size_t{0});
  outcome.threads = all.value("threads", 0u);
  outcome.resources.registers = all.value("registers", 0u);
  outcome.resources.static_smem_bytes = all.value("static_smem_bytes", 0u);
  outcome.resources.stack_bytes = all.value("stack_bytes", 0u);
  if (const Json spills = all.value("spill_bytes", Json(nullptr)); spills.is_number()) {
    outcome.resources.spill_store_bytes = spills.get<std::uint32_t>();
    outcome.resources.spill_load_bytes = 0;
  }
  outcome.dynamic_smem_bytes = all.value("dynamic_smem_bytes", 0u);
  outcome.occupancy = all.value("ctas_per_sm", 0);
  for (const Json& one : all.value("cases", Json::array())) {
    CaseReport report;
    report.shape = one.value("shape", "");
    report.compared = one.value("compared", std::int64_t{0});
    report.rel_l2 = one.value("rel_l2", 0.0);
    report.limit = one.value("limit", 0.0);
    report.worst = one.value("worst_of_allowed", 0.0);
    report.repeatable = one.value("repeatable", false);
    report.trouble = one.value("trouble", "");
    outcome.report.cases.push_back(report);
  }
  for (const Json& one : all.value("times", Json::array())) {
    TimeReport report;
    report.shape = one.value("shape", "");
    report.how = one.value("how", "");
    report.us = one.value("us", 0.0);
    report.us_again = one.value("us_again", 0.0);
    report.bytes = one.value("bytes", 0.0);
    report.flops = one.value("flops", 0.0);
    report.unit = one.value("unit", "");
    report.cublaslt_us = one.value("cublaslt_us", 0.0);
    report.beside_us = one.value("beside_us", 0.0);
    outcome.report.times.push_back(report);
  }
}

std::string DeviceJson(const Gpu& gpu, double copy_gb_s) {
  return Json{{"name", gpu.spec.name},         {"driver", gpu.spec.driver},
              {"cublaslt", CublasLtVersion()}, {"compute_capability", gpu.spec.compute_capability},
              {"sm_count", gpu.spec.sm_count}, {"l2_bytes", gpu.spec.l2_bytes},
              {"copy_gb_s", copy_gb_s}}
      .dump();
}

bool TakeDevice(const std::string& json, DeviceFacts& device) {
  const Json all = Json::parse(json, nullptr, false);
  if (all.is_discarded() || !all.is_object() || !all.contains("copy_gb_s")) return false;
  device.name = all.value("name", "");
  device.driver = all.value("driver", "");
  device.cublaslt = all.value("cublaslt", "");
  device.compute_capability = all.value("compute_capability", 0);
  device.sm_count = all.value("sm_count", 0);
  device.l2_bytes = all.value("l2_bytes", std::int64_t{0});
  device.copy_gb_s = all.value("copy_gb_s", 0.0);
  return true;
}

std::string ErrorOf(const std::string& json) {
  const Json all = Json::parse(json, nullptr, false);
  return all.is_object() ? all.value("trouble", json) : json;
}

double PeakBf16Tflops(const DeviceFacts& device) {
  // Dense rates by the vendor's datasheets, of the SXM parts.
  struct Row {
    const char* name;
    double tflops;
  };
  constexpr Row kRows[] = {
      {"H200", 989}, {"H100", 989}, {"A100", 312}, {"L40S", 362}, {"B200", 2250}};
  for (const Row& row : kRows) {
    if (device.name.find(row.name) != std::string::npos) return row.tflops;
  }
  return 0;
}

std::string DeviceLine(const DeviceFacts& device) {
  return Format(
      "{}, sm_{}, {} multiprocessors, {} L2, driver {}; copy {:.0f} GB/s measured, bf16 peak "
      "{:.0f} TFLOP/s assumed; cuBLASLt {}",
      device.name, device.compute_capability, device.sm_count,
      HumanBytes(static_cast<std::uint64_t>(device.l2_bytes)), device.driver, device.copy_gb_s,
      device.peak_bf16_tflops, device.cublaslt.empty() ? "not found" : device.cublaslt);
}

double FloorUs(const TimeReport& time, const DeviceFacts& device) {
  const double bytes_us = device.copy_gb_s > 0 ? time.bytes / device.copy_gb_s / 1e3 : 0;
  const double flops_us = device.peak_bf16_tflops > 0 && time.unit == "bf16"
                              ? time.flops / device.peak_bf16_tflops / 1e6
                              : 0;
  return std::max(bytes_us, flops_us);
}

std::string CheckLine(const KernelOutcome& outcome) {
  double limit = 0;
  const double rel = WorstRelL2(outcome, limit);
  if (outcome.Passed()) {
    return Format("ok    {}  {} shapes, rel L2 {:.2e} (limit {:.2e})", outcome.spec,
                  outcome.report.cases.size(), rel, limit);
  }
  return Format("FAIL  {}  {}", outcome.spec, FirstTrouble(outcome));
}

std::string TimeLines(const KernelOutcome& outcome, const DeviceFacts& device) {
  std::string lines;
  for (const TimeReport& time : outcome.report.times) {
    lines += Format("time  {}  {}: {:.2f} us (again {:.2f}), {}, {} of the floor ({})\n",
                    outcome.spec, time.shape, time.us, time.us_again, Rate(time, device),
                    OfFloor(time, device), time.how);
  }
  if (!outcome.Passed()) lines += CheckLine(outcome) + "\n";
  return lines;
}

std::string SummaryTable(const std::vector<KernelOutcome>& outcomes, const DeviceFacts& device) {
  std::string text =
      "| kernel | result | shapes | rel L2 | limit | regs | CTAs/SM | timed shape | us | rate | of "
      "floor | cuBLASLt us | speed against it, in turns |\n"
      "|---|---|---:|---:|---:|---:|---:|---|---:|---:|---:|---:|---:|\n";
  for (const KernelOutcome& outcome : outcomes) {
    double limit = 0;
    const double rel = WorstRelL2(outcome, limit);
    const std::string head = Format("| {} | {} | {} | {:.2e} | {:.2e} | {} | {} |", outcome.spec,
                                    outcome.Passed() ? "ok" : "FAIL", outcome.report.cases.size(),
                                    rel, limit, outcome.resources.registers, outcome.occupancy);
    if (outcome.report.times.empty()) text += head + " | | | | | |\n";
    for (const TimeReport& time : outcome.report.times) {
      text += Format("{} {} | {:.2f} | {} | {} | {} |\n", head, time.shape, time.us,
                     Rate(time, device), OfFloor(time, device), AgainstCublasLt(time));
    }
  }
  for (const KernelOutcome& outcome : outcomes) {
    if (!outcome.Passed()) text += Format("\n- {}: {}", outcome.spec, FirstTrouble(outcome));
  }
  return text;
}

void WriteReport(const std::string& file, const std::vector<KernelOutcome>& outcomes,
                 const DeviceFacts& device, std::uint64_t seed,
                 const std::vector<std::string>& command) {
  const std::string commit = Environment("TILEWRIGHT_COMMIT", "unknown");
  const std::string date = Today();
  Json kernels = Json::array();
  for (const KernelOutcome& outcome : outcomes) kernels.push_back(ToJson(outcome));
  const Json all = {{"provenance",
                     {{"date", date},
                      {"commit", commit},
                      {"command", Environment("TILEWRIGHT_RECORD_COMMAND", Shown(command).c_str())},
                      {"device", device.name},
                      {"driver", device.driver},
                      {"cublaslt", device.cublaslt},
                      {"compute_capability", device.compute_capability},
                      {"sm_count", device.sm_count},
                      {"l2_bytes", device.l2_bytes},
                      {"copy_gb_s_measured", device.copy_gb_s},
                      {"bf16_tflops_assumed", device.peak_bf16_tflops},
                      {"seed", seed}}},
                    {"kernels", kernels}};
  std::ofstream(file) << all.dump(1) << "\n";
  std::filesystem::path table = file;
  table.replace_extension(".md");
  std::ofstream(table) << "Every kernel of the catalog on one GPU, against float64\n\n"
                       << SummaryTable(outcomes, device) << "\n\n"
                       << date << ", " << DeviceLine(device) << ", commit " << commit << ", seed "
                       << seed << ".\nCommand: `"
                       << Environment("TILEWRIGHT_RECORD_COMMAND", Shown(command).c_str()) << "`\n";
}

}  // namespace tilewright::gpu_check
