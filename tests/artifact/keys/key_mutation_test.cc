// Every input of a key changes it, and nothing else does.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "artifact/key_record.h"
#include "core/random.h"
#include "key_inputs.h"

namespace tilewright {
namespace {

// Another value of each kind of field. A field of a new kind has none and does not compile.
void Mutate(FamilyName& v) { v = "other"; }
void Mutate(CudaArch& v) { v.number = static_cast<std::uint16_t>(v.number + 10); }
void Mutate(DataType& v) { v = v == DataType::kF16 ? DataType::kF32 : DataType::kF16; }
void Mutate(Order& v) { v = Flip(v); }
void Mutate(SpecEpilogue& v) {
  v = v == SpecEpilogue::kAdd ? SpecEpilogue::kNone : SpecEpilogue::kAdd;
}
void Mutate(std::uint8_t& v) { ++v; }
void Mutate(std::uint16_t& v) { ++v; }
void Mutate(std::int32_t& v) { v = -1 - v; }

ArtifactKey RequestKey(const test::KeyInputs& inputs) {
  const auto request = test::RequestOf(inputs);
  EXPECT_TRUE(request) << (request ? "" : request.error().message);
  return request ? request->key : ArtifactKey();
}
ArtifactKey ActionKey(const test::KeyInputs& inputs) {
  const auto action = test::ActionOf(inputs);
  EXPECT_TRUE(action) << (action ? "" : action.error().message);
  return action ? action->key : ArtifactKey();
}

std::vector<std::string> SpecFieldNames() {
  std::vector<std::string> names;
  const KernelSpec spec;
  ForEachSpecField(spec, [&](std::string_view name, const auto&) { names.emplace_back(name); });
  return names;
}

TEST(SpecFields, CoverEveryByteOfASpec) {
  KernelSpec spec;
  std::vector<int> covered(sizeof spec, 0);
  const char* const base = reinterpret_cast<const char*>(&spec);
  ForEachSpecField(spec, [&](std::string_view, auto& field) {
    const std::size_t at = static_cast<std::size_t>(reinterpret_cast<const char*>(&field) - base);
    for (std::size_t i = 0; i < sizeof field; ++i) ++covered.at(at + i);
  });
  EXPECT_EQ(covered, std::vector<int>(sizeof spec, 1)) << "a field is not visited, or twice";
}

TEST(SpecFields, HaveDistinctNames) {
  const auto names = SpecFieldNames();
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
}

TEST(KeyMutation, EverySpecFieldChangesBothKeysAndIsNamedInTheDifference) {
  test::KeyInputs base = test::FixedInputs();
  base.launch = [](const KernelSpec&) { return KernelLaunchShape{128, 4096}; };  // of any spec
  const auto base_record = test::RequestOf(base);
  const auto base_action = ActionKey(base);
  std::set<ArtifactKey> keys = {base_record->key};
  const auto names = SpecFieldNames();
  for (std::size_t changed = 0; changed < names.size(); ++changed) {
    test::KeyInputs inputs = base;
    std::size_t i = 0;
    ForEachSpecField(inputs.spec, [&](std::string_view, auto& field) {
      if (i++ == changed) Mutate(field);
    });
    ASSERT_NE(inputs.spec, base.spec);
    const auto record = test::RequestOf(inputs);
    ASSERT_TRUE(record) << record.error().message;
    EXPECT_TRUE(keys.insert(record->key).second) << names[changed];
    EXPECT_NE(ActionKey(inputs), base_action) << names[changed];
    const auto differences = DiffKeyRecords(base_record->bytes, record->bytes);
    ASSERT_TRUE(differences) << differences.error().message;
    ASSERT_EQ(differences->size(), 1u) << names[changed];
    EXPECT_EQ(differences->front().field, names[changed]);
  }
}

TEST(KeyMutation, TheSuffixOfAnArchitectureCounts) {
  std::set<ArtifactKey> keys;
  for (const char* arch : {"sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_120"}) {
    test::KeyInputs inputs = test::FixedInputs();
    inputs.spec.arch = *ParseCudaArch(arch);
    EXPECT_TRUE(keys.insert(RequestKey(inputs)).second) << arch;
  }
}

TEST(KeyMutation, EveryOtherInputOfARequestChangesIt) {
  // A field added to a family must be decided on here: part of the key below, or ignored.
  const test::InputFamily family(test::FixedInputs());
  [[maybe_unused]] const auto& [name, revision, launch_abi, source, files, options, check, launch,
                                limits, catalog, waits_for_prerequisites] = family.get();
  const struct {
    const char* what;
    void (*change)(test::KeyInputs&);
    const char* field;
  } changes[] = {
      {"revision", [](test::KeyInputs& in) { ++in.revision; }, "revision"},
      {"launch ABI", [](test::KeyInputs& in) { ++in.launch_abi; }, "launch_abi"},
      {"threads of a CTA",
       [](test::KeyInputs& in) {
         in.launch = [](const KernelSpec& spec) {
           return KernelLaunchShape{32u * spec.warps + 32, 1024u * spec.stages};
         };
       },
       "threads"},
      {"dynamic shared memory",
       [](test::KeyInputs& in) {
         in.launch = [](const KernelSpec& spec) {
           return KernelLaunchShape{32u * spec.warps, 1024u * spec.stages + 16};
         };
       },
       "dynamic_smem_bytes"},
      {"the limit on registers",
       [](test::KeyInputs& in) {
         in.limits = [](const KernelSpec&) { return ResourceLimits{.max_registers = 168}; };
       },
       "max_registers"},
      {"the limit on spills",
       [](test::KeyInputs& in) {
         in.limits = [](const KernelSpec&) { return ResourceLimits{.max_spill_bytes = 1}; };
       },
       "max_spill_bytes"},
      {"the limit on the stack",
       [](test::KeyInputs& in) {
         in.limits = [](const KernelSpec&) { return ResourceLimits{.max_stack_bytes = 1}; };
       },
       "max_stack_bytes"},
      {"the unit's text", [](test::KeyInputs& in) { in.files["keys/unit.cu"] += " "; },
       "source_digest"},
      {"the unit's name",
       [](test::KeyInputs& in) {
         in.files["keys/renamed.cu"] = in.files["keys/unit.cu"];
         in.source = "keys/renamed.cu";
       },
       "source"},
      {"a header's text", [](test::KeyInputs& in) { in.files["keys/inner.cuh"] += "\n"; },
       "header keys/inner.cuh"},
      {"a header's header", [](test::KeyInputs& in) { in.files["keys/deep.cuh"][0] = ' '; },
       "header keys/deep.cuh"},
      {"the header of spec.cuh",
       [](test::KeyInputs& in) { in.files["device/cuda/kernels/types.cuh"] += "//"; },
       "header device/cuda/kernels/types.cuh"},
      {"an option's value", [](test::KeyInputs& in) { in.options[0].second = "true"; },
       "option --fmad"},
      {"one option less", [](test::KeyInputs& in) { in.options.clear(); }, "option --fmad"},
      {"one option more",
       [](test::KeyInputs& in) {
         in.options.push_back({"--restrict", ""});
       },
       "option --restrict"},
  };
  const test::KeyInputs base = test::FixedInputs();
  const auto base_record = test::RequestOf(base);
  std::set<ArtifactKey> keys = {base_record->key};
  for (const auto& change : changes) {
    test::KeyInputs inputs = base;
    change.change(inputs);
    const auto record = test::RequestOf(inputs);
    ASSERT_TRUE(record) << change.what << ": " << record.error().message;
    EXPECT_TRUE(keys.insert(record->key).second) << change.what;
    const auto differences = DiffKeyRecords(base_record->bytes, record->bytes);
    ASSERT_TRUE(differences);
    ASSERT_EQ(differences->size(), 1u) << change.what;
    EXPECT_EQ(differences->front().field, change.field);
  }
}

TEST(KeyMutation, ALaunchShapeOrLimitThatIsAddedMustBeDecidedOn) {
  // Each member is a field of the request record; one more does not compile here.
  [[maybe_unused]] const auto& [threads, dynamic_smem_bytes] = KernelLaunchShape();
  [[maybe_unused]] const auto& [registers, spill_bytes, stack_bytes] = ResourceLimits();
}

TEST(KeyMutation, ASpecThatTheFamilyRefusesHasNoKey) {
  test::KeyInputs inputs = test::FixedInputs();
  inputs.spec.tile_m = 13;
  inputs.launch = [](const KernelSpec& spec) {
    if (spec.tile_m == 13) ADD_FAILURE() << "asked for a spec that `check` refuses";
    return KernelLaunchShape{};
  };
  const auto record = test::RequestOf(inputs);
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code, ErrorCode::kInvalidArgument);
}

TEST(KeyMutation, AHeaderMoreIsADifferenceWithNothingOnOneSide) {
  const test::KeyInputs base = test::FixedInputs();
  test::KeyInputs more = base;
  more.files["keys/more.cuh"] = "\n";
  more.files["keys/deep.cuh"] += "#include \"keys/more.cuh\"\n";
  const auto forth = DiffKeyRecords(test::RequestOf(base)->bytes, test::RequestOf(more)->bytes);
  const auto back = DiffKeyRecords(test::RequestOf(more)->bytes, test::RequestOf(base)->bytes);
  ASSERT_TRUE(forth && back);
  ASSERT_EQ(forth->size(), 2u);
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*forth)[1].field, "header keys/more.cuh");
  EXPECT_EQ((*forth)[1].wanted, "");
  EXPECT_EQ((*forth)[1].stored.size(), 64u);
  EXPECT_EQ((*back)[1].stored, "");
}

TEST(KeyMutation, EveryFieldOfTheCompilersIdentityChangesTheActionAlone) {
  const test::KeyInputs base = test::FixedInputs();
  std::set<ArtifactKey> actions = {ActionKey(base)};
  const ArtifactKey request = RequestKey(base);
  for (int field = 0; field < 5; ++field) {
    test::KeyInputs inputs = base;
    // A field added to the identity does not compile here.
    auto& [backend, version, build_id, builtins_version, builtins_build_id] = inputs.compiler;
    std::string* const fields[] = {&backend, &version, &build_id, &builtins_version,
                                   &builtins_build_id};
    *fields[field] += "1";
    EXPECT_EQ(RequestKey(inputs), request);
    EXPECT_TRUE(actions.insert(ActionKey(inputs)).second) << field;
  }
}

TEST(KeyMutation, AnIdentityThatTellsNothingApartIsRefused) {
  for (int field = 0; field < 3; ++field) {
    CompilerIdentity compiler = test::FixedInputs().compiler;
    std::string* const fields[] = {&compiler.backend, &compiler.version, &compiler.build_id};
    fields[field]->clear();
    const auto action = MakeActionRecord(ArtifactKey(), compiler);
    ASSERT_FALSE(action);
    EXPECT_EQ(action.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(KeyMutation, WhatCannotAffectTheCodeDoesNotChangeTheKey) {
  const test::KeyInputs base = test::FixedInputs();
  const ArtifactKey key = RequestKey(base);
  test::KeyInputs inputs = base;
  inputs.files["keys/unused.cuh"] = "#error nobody includes this\n";
  EXPECT_EQ(RequestKey(inputs), key) << "a file that is not reached";
  inputs.files["a/unused.cu"] = "";
  EXPECT_EQ(RequestKey(inputs), key) << "the order of files";

  // Other families in the same store, and the place of the text in memory.
  const test::InputFamily family(base);
  test::KeyInputs other_inputs = base;
  other_inputs.spec.family = "other";
  other_inputs.files["keys/deep.cuh"] = "// another text under the same name\n";
  const test::InputFamily other(other_inputs);
  KernelFamilies families;
  ASSERT_TRUE(families.Add(other.get()));
  ASSERT_TRUE(families.Add(family.get()));
  const auto sources = KernelSources::Make(families);
  ASSERT_TRUE(sources);
  const auto request = MakeRequestRecord(base.spec, family.get(), *sources);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->key, key);
}

TEST(KeyMutation, TheFirstKeyOfAProcessIsTheLaterOnes) {
  // Whatever is made of a key (symbol, source, options, entry) leaves the next key as it was.
  for (const KernelSpec& spec : test::FixedSpecs()) {
    test::KeyInputs inputs = test::FixedInputs();
    inputs.spec = spec;
    const auto first = test::RequestOf(inputs);
    const auto entry = test::EntryOf(inputs, test::FakeOutput(100, 10));
    ASSERT_TRUE(first && entry);
    const auto decoded = DecodeArtifact(*entry);
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(decoded->request, first->key);
    inputs.spec = decoded->spec;  // as read back, not as written down
    EXPECT_EQ(test::RequestOf(inputs)->bytes, first->bytes);
    inputs.spec = *ParseSpecName(SpecName(spec));
    EXPECT_EQ(test::RequestOf(inputs)->bytes, first->bytes);
  }
}

TEST(KeyMutation, AValueThatNoTypeNamesIsRefusedNamingTheField) {
  const struct {
    const char* field;
    void (*spoil)(KernelSpec&);
  } cases[] = {{"family", [](KernelSpec& s) { s.family.chars[10] = 'x'; }},
               {"family", [](KernelSpec& s) { s.family.chars.fill('x'); }},
               {"arch", [](KernelSpec& s) { s.arch.suffix = 'b'; }},
               {"arch", [](KernelSpec& s) { s.arch.suffix = 'a' + 256; }},
               {"arch", [](KernelSpec& s) { s.arch.number = 0; }},
               {"arch", [](KernelSpec& s) { s.arch.number = 1000; }},
               {"type_a", [](KernelSpec& s) { s.type_a = static_cast<DataType>(200); }},
               {"type_d", [](KernelSpec& s) { s.type_d = static_cast<DataType>(255); }},
               {"order_b", [](KernelSpec& s) { s.order_b = static_cast<Order>(2); }},
               {"epilogue", [](KernelSpec& s) { s.epilogue = static_cast<SpecEpilogue>(9); }}};
  const test::InputFamily family(test::FixedInputs());
  KernelFamilies families;
  ASSERT_TRUE(families.Add(family.get()));
  const auto sources = KernelSources::Make(families);
  for (const auto& bad : cases) {
    KernelSpec spec = test::FixedSpecs()[0];
    bad.spoil(spec);
    const auto request = MakeRequestRecord(spec, family.get(), *sources);
    ASSERT_FALSE(request) << bad.field;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(request.error().message.find(bad.field), std::string::npos)
        << request.error().message;
    EXPECT_FALSE(SpecName(spec).empty()) << "a log line can still be written";
  }
}

TEST(KeyMutation, ASpecOfAnotherFamilyIsRefused) {
  const test::InputFamily family(test::FixedInputs());
  KernelFamilies families;
  ASSERT_TRUE(families.Add(family.get()));
  const auto sources = KernelSources::Make(families);
  KernelSpec spec = test::FixedSpecs()[0];
  spec.family = "other";
  EXPECT_EQ(MakeRequestRecord(spec, family.get(), *sources).error().code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(MakeRequestRecord(test::FixedSpecs()[0], family.get(), KernelSources()).error().code,
            ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace tilewright
