#include "artifact/compile_options.h"

#include <algorithm>
#include <charconv>

#include "artifact/spec_words.h"
#include "core/text.h"
#include "tilewright/artifact_key.h"

namespace tilewright {
namespace {

enum class Role {
  kEvery,    ///< given for every kernel, affects the output: in the request record
  kFamily,   ///< may be given by a family, affects the output: in the request record
  kDerived,  ///< derived from the record (architecture) or from its digest (seed)
  kIgnored,  ///< given for every kernel, cannot affect the output
};

enum class Form { kNone, kBool, kCount, kFixed };

struct Rule {
  std::string_view flag;
  Role role;
  Form form;
  std::string_view value;  ///< of Role::kEvery and kIgnored
};

// Every option that is passed to the compiler, in that order; docs/artifact_key.md explains them.
// Any other option is an error, so that none can get into a build without a decision about whether
// it belongs in the key.
constexpr Rule kRules[] = {
    {"--std", Role::kEvery, Form::kFixed, "c++17"},
    {"-default-device", Role::kEvery, Form::kNone, ""},
    {"--no-source-include", Role::kEvery, Form::kNone, ""},  // else files beside the unit's name,
                                                             // seen from the working directory
    {"--ptxas-options", Role::kEvery, Form::kFixed, "-v"},
    {"--no-cache", Role::kIgnored, Form::kNone, ""},
    {"--extra-device-vectorization", Role::kFamily, Form::kNone, ""},
    {"--fmad", Role::kFamily, Form::kBool, ""},
    {"--maxrregcount", Role::kFamily, Form::kCount, ""},
    {"--restrict", Role::kFamily, Form::kNone, ""},
    {"--use_fast_math", Role::kFamily, Form::kNone, ""},
    {"--gpu-architecture", Role::kDerived, Form::kFixed, ""},
    {"--frandom-seed", Role::kDerived, Form::kFixed, ""},
};

const Rule* FindRule(std::string_view flag) {
  for (const Rule& rule : kRules) {
    if (rule.flag == flag) return &rule;
  }
  return nullptr;
}

/// `-fmad=false` and {"--fmad", "false"} are the same option.
NormalOption Spell(const CompileOption& option) {
  NormalOption normal{std::string(option.flag), std::string(option.value)};
  const std::size_t equals = normal.flag.find('=');
  if (equals != std::string::npos && normal.value.empty()) {
    normal.value = normal.flag.substr(equals + 1);
    normal.flag.resize(equals);
  }
  if (FindRule(normal.flag) == nullptr && FindRule("-" + normal.flag) != nullptr) {
    normal.flag.insert(0, 1, '-');
  }
  return normal;
}

/// Brings the value into its canonical spelling ("064" becomes "64"), or says why it is invalid.
Status NormaliseValue(const Rule& rule, std::string& value) {
  const auto fail = [&](std::string_view need) {
    return Fail(ErrorCode::kInvalidArgument,
                Format("compiler option {}: value \"{}\" must be {}", rule.flag, value, need));
  };
  switch (rule.form) {
    case Form::kNone:
      return value.empty() ? Status() : fail("absent");
    case Form::kBool:
      return value == "true" || value == "false" ? Status() : fail("true or false");
    case Form::kCount: {
      int count = 0;
      const char* last = value.data() + value.size();
      const auto [end, error] = std::from_chars(value.data(), last, count);
      if (error != std::errc() || end != last || count < 1 || count > 255) {
        return fail("a number from 1 to 255");
      }
      value = Format("{}", count);
      return {};
    }
    case Form::kFixed:
      return value == rule.value ? Status() : fail(rule.value);
  }
  return {};
}

Result<NormalOption> FamilyOption(const CompileOption& option) {
  NormalOption normal = Spell(option);
  const Rule* rule = FindRule(normal.flag);
  const auto fail = [&](std::string_view why) {
    return Fail(ErrorCode::kInvalidArgument, Format("compiler option {}: {}", option.flag, why));
  };
  if (rule == nullptr) {
    return fail("not one of the options that a family may give (docs/artifact_key.md)");
  }
  if (rule->role == Role::kDerived)
    return fail("is derived from the spec, so a family may not give it");
  if (rule->role != Role::kFamily)
    return fail("is given for every kernel, so a family may not give it");
  if (Status status = NormaliseValue(*rule, normal.value); !status) return Fail(status.error());
  return normal;
}

}  // namespace

Result<std::vector<NormalOption>> RecordedOptions(std::span<const CompileOption> of_family) {
  std::vector<NormalOption> options;
  options.reserve(of_family.size() + std::size(kRules));
  for (const Rule& rule : kRules) {
    if (rule.role == Role::kEvery) {
      options.push_back({std::string(rule.flag), std::string(rule.value)});
    }
  }
  for (const CompileOption& option : of_family) {
    Result<NormalOption> normal = FamilyOption(option);
    if (!normal) return Fail(normal.error());
    options.push_back(*std::move(normal));
  }
  std::sort(options.begin(), options.end(),
            [](const NormalOption& a, const NormalOption& b) { return a.flag < b.flag; });
  for (std::size_t i = 1; i < options.size(); ++i) {
    if (options[i].flag == options[i - 1].flag) {
      return Fail(ErrorCode::kInvalidArgument,
                  Format("compiler option {}: given twice", options[i].flag));
    }
  }
  return options;
}

Result<std::vector<CompileOption>> FamilyOptionsOf(std::span<const NormalOption> recorded) {
  std::vector<CompileOption> of_family;
  for (const NormalOption& option : recorded) {
    const Rule* rule = FindRule(option.flag);
    if (rule == nullptr || rule->role != Role::kEvery) {
      of_family.push_back({option.flag, option.value});
    }
  }
  const Result<std::vector<NormalOption>> again = RecordedOptions(of_family);
  if (!again) return Fail(ErrorCode::kUnsupported, again.error().message);
  if (!std::equal(again->begin(), again->end(), recorded.begin(), recorded.end())) {
    return Fail(ErrorCode::kUnsupported,
                "the compiler options are not those that this version uses for every kernel");
  }
  return of_family;
}

std::string OptionText(const NormalOption& option) {
  return option.value.empty() ? option.flag : option.flag + "=" + option.value;
}

Result<std::vector<std::string>> CompilerOptions(const KernelSpec& spec, const KernelFamily& family,
                                                 const ArtifactKey& request) {
  if (Status status = CheckSpecValues(spec); !status) return Fail(status.error());
  const Result<std::vector<NormalOption>> recorded = RecordedOptions(family.options);
  if (!recorded) return Fail(recorded.error());
  std::vector<std::string> options;
  for (const Rule& rule : kRules) {
    switch (rule.role) {
      case Role::kEvery:
      case Role::kIgnored:
        options.push_back(OptionText({std::string(rule.flag), std::string(rule.value)}));
        break;
      case Role::kFamily:
        for (const NormalOption& option : *recorded) {
          if (option.flag == rule.flag) options.push_back(OptionText(option));
        }
        break;
      case Role::kDerived:
        options.push_back(OptionText({std::string(rule.flag), rule.flag == "--gpu-architecture"
                                                                  ? spec.arch.ToString()
                                                                  : request.Hex().substr(0, 16)}));
        break;
    }
  }
  return options;
}

}  // namespace tilewright
