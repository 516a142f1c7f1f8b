// Records are injective and canonical: equal bytes if and only if equal fields, and nothing is read
// that was not written.
#include "artifact/key_record.h"

#include <gtest/gtest.h>

#include "artifact/field_codec.h"
#include "core/random.h"
#include "core/sha256.h"
#include "key_inputs.h"

namespace tilewright {
namespace {

/// A number below `n`.
std::uint64_t Below(Random& random, std::uint64_t n) { return random.Next() % n; }

/// Few letters, so that names often share beginnings and ends.
std::string RandomWord(Random& random, std::size_t max) {
  std::string word(1 + Below(random, max), 'a');
  for (char& c : word) c = "abc"[Below(random, 3)];
  return word;
}

void Randomise(Random& random, FamilyName& v) { v = FamilyName(RandomWord(random, 3)); }
void Randomise(Random& random, CudaArch& v) {
  v = {static_cast<std::uint16_t>(80 + 10 * Below(random, 2)),
       static_cast<std::uint16_t>(Below(random, 2) == 0 ? 0 : 'a')};
}
void Randomise(Random& random, DataType& v) { v = static_cast<DataType>(Below(random, 4)); }
void Randomise(Random& random, Order& v) { v = static_cast<Order>(Below(random, 2)); }
void Randomise(Random& random, SpecEpilogue& v) { v = static_cast<SpecEpilogue>(Below(random, 3)); }
void Randomise(Random& random, std::uint8_t& v) {
  v = static_cast<std::uint8_t>(Below(random, 2) == 0 ? Below(random, 256) : Below(random, 3));
}
void Randomise(Random& random, std::uint16_t& v) {
  v = static_cast<std::uint16_t>(Below(random, 2) == 0 ? Below(random, 65536) : Below(random, 3));
}
void Randomise(Random& random, std::int32_t& v) {
  v = static_cast<std::int32_t>(Below(random, 2) == 0 ? random.Next() : Below(random, 3));
}

/// Fields with storage for their names.
struct Owned {
  KernelSpec spec;
  std::uint32_t revision = 1, render_revision = 1, launch_abi = 1;
  KernelLaunchShape launch;
  ResourceLimits limits;
  std::string source;
  FileDigest digest{};
  std::map<std::string, FileDigest> headers;
  std::map<std::string, std::string> options;

  bool operator==(const Owned&) const = default;
  RequestFields Fields() const {
    RequestFields fields{
        spec, revision, render_revision, launch_abi, launch, limits, {source, digest}, {}, {}};
    for (const auto& [name, value] : headers) fields.headers.push_back({name, value});
    std::vector<CompileOption> given;
    for (const auto& [flag, value] : options) given.push_back({flag, value});
    fields.options = *RecordedOptions(given);
    return fields;
  }
};

Owned OwnedOf(const RequestFields& fields) {
  Owned out{fields.spec,
            fields.revision,
            fields.render_revision,
            fields.launch_abi,
            fields.launch,
            fields.limits,
            std::string(fields.source.name),
            fields.source.digest,
            {},
            {}};
  for (const auto& header : fields.headers) out.headers[std::string(header.name)] = header.digest;
  const auto given = FamilyOptionsOf(fields.options);
  for (const CompileOption& o : *given) out.options[std::string(o.flag)] = std::string(o.value);
  return out;
}

FileDigest RandomDigest(Random& random) {
  FileDigest digest{};
  digest[Below(random, digest.size())] = static_cast<std::uint8_t>(Below(random, 3));
  return digest;
}

std::uint32_t Number(Random& random) { return static_cast<std::uint32_t>(Below(random, 3)); }

Owned RandomFields(Random& random) {
  Owned out;
  ForEachSpecField(out.spec, [&](std::string_view, auto& field) { Randomise(random, field); });
  out.revision = static_cast<std::uint32_t>(Below(random, 3));
  out.launch_abi = static_cast<std::uint32_t>(Below(random, 3));
  out.launch = {Number(random), Number(random)};
  out.limits = {Number(random), Number(random), Number(random)};
  out.source = RandomWord(random, 6);
  out.digest = RandomDigest(random);
  for (std::uint64_t n = Below(random, 4); n > 0; --n) {
    out.headers[RandomWord(random, 6)] = RandomDigest(random);
  }
  if (Below(random, 2) == 0) out.options["--fmad"] = Below(random, 2) == 0 ? "true" : "false";
  if (Below(random, 2) == 0) out.options["--maxrregcount"] = std::to_string(1 + Below(random, 255));
  if (Below(random, 4) == 0) out.options["--restrict"] = "";
  return out;
}

/// A copy, or one that differs in one place.
Owned Neighbour(Random& random, const Owned& of) {
  Owned out = of;
  const Owned other = RandomFields(random);
  switch (Below(random, 12)) {
    case 0:
      break;
    case 1:
      out.revision = other.revision;
      break;
    case 2:
      out.launch_abi = other.launch_abi;
      break;
    case 3:
      out.source = other.source;
      break;
    case 4:
      out.digest = other.digest;
      break;
    case 5:
      out.headers = other.headers;
      break;
    case 6:
      out.options = other.options;
      break;
    case 7:
      out.launch = other.launch;
      break;
    case 8:
      out.limits = other.limits;
      break;
    default: {
      const std::uint64_t changed = Below(random, 21);
      std::uint64_t i = 0;
      ForEachSpecField(out.spec, [&](std::string_view, auto& field) {
        if (i++ == changed) Randomise(random, field);
      });
    }
  }
  return out;
}

TEST(RequestRecord, IsEqualIfAndOnlyIfTheFieldsAre) {
  Random random(20260704);
  int equal = 0;
  for (int i = 0; i < 120000; ++i) {
    const Owned a = RandomFields(random);
    const Owned b = Below(random, 4) == 0 ? RandomFields(random) : Neighbour(random, a);
    const std::string bytes_a = EncodeRequestFields(a.Fields());
    const std::string bytes_b = EncodeRequestFields(b.Fields());
    ASSERT_EQ(bytes_a == bytes_b, a == b) << SpecName(a.spec) << " " << SpecName(b.spec);
    equal += a == b ? 1 : 0;
    const auto back = DecodeRequestFields(bytes_a);
    ASSERT_TRUE(back) << back.error().message;
    ASSERT_TRUE(OwnedOf(*back) == a);
    ASSERT_EQ(EncodeRequestFields(*back), bytes_a);
  }
  EXPECT_GT(equal, 10000) << "the pairs should not all differ";
}

TEST(RequestRecord, ByteMovedFromOneNameToTheNextChangesIt) {
  Owned a;
  a.spec = test::FixedSpecs()[0];
  a.source = "s";
  a.headers = {{"a", {}}, {"bc", {}}};
  Owned b = a;
  b.headers = {{"ab", {}}, {"c", {}}};
  EXPECT_NE(EncodeRequestFields(a.Fields()), EncodeRequestFields(b.Fields()));

  const auto action = [](std::string version, std::string build_id) {
    CompilerIdentity compiler{.backend = "nvrtc",
                              .version = std::move(version),
                              .build_id = std::move(build_id),
                              .builtins_version = "",
                              .builtins_build_id = ""};
    return MakeActionRecord(ArtifactKey(), compiler)->key;
  };
  EXPECT_NE(action("a", "bc"), action("ab", "c"));
  EXPECT_NE(action("13.0", "1"), action("13.01", "0"));
}

TEST(RequestRecord, EmptyAndAbsentAreNotTheSame) {
  CompilerIdentity compiler = test::FixedInputs().compiler;
  compiler.builtins_version = "";
  compiler.builtins_build_id = "x";
  const auto a = MakeActionRecord(ArtifactKey(), compiler);
  std::swap(compiler.builtins_version, compiler.builtins_build_id);
  EXPECT_NE(MakeActionRecord(ArtifactKey(), compiler)->key, a->key);
}

TEST(KeyRecords, AreShownFieldByField) {
  const auto request = test::RequestOf(test::FixedInputs());
  const auto fields = DecodeKeyRecord(request->bytes);
  ASSERT_TRUE(fields) << fields.error().message;
  const auto value = [&](std::string_view name) {
    for (const KeyField& field : *fields) {
      if (field.name == name) return field.value;
    }
    return std::string("absent");
  };
  EXPECT_EQ(value("schema"), "2");
  EXPECT_EQ(value("record"), "request");
  EXPECT_EQ(value("family"), "keys");
  EXPECT_EQ(value("arch"), "sm_80");
  EXPECT_EQ(value("type_a"), "bf16");
  EXPECT_EQ(value("type_c"), "none");
  EXPECT_EQ(value("order_a"), "row_major");
  EXPECT_EQ(value("epilogue"), "none");
  EXPECT_EQ(value("tile_m"), "128");
  EXPECT_EQ(value("revision"), "3");
  EXPECT_EQ(value("launch_abi"), "2");
  EXPECT_EQ(value("threads"), "128");
  EXPECT_EQ(value("dynamic_smem_bytes"), "4096");
  EXPECT_EQ(value("max_registers"), "255");
  EXPECT_EQ(value("max_spill_bytes"), "0");
  EXPECT_EQ(value("max_stack_bytes"), "0");
  EXPECT_EQ(value("source"), "keys/unit.cu");
  EXPECT_EQ(value("source_digest"), *Sha256Hex(test::FixedInputs().files["keys/unit.cu"]));
  EXPECT_EQ(value("header keys/deep.cuh"), *Sha256Hex(test::FixedInputs().files["keys/deep.cuh"]));
  EXPECT_EQ(value("option --fmad"), "false");
  EXPECT_EQ(value("option --std"), "c++17");
  EXPECT_EQ(value("option -default-device"), "given");

  const auto action = test::ActionOf(test::FixedInputs());
  const auto action_fields = DecodeKeyRecord(action->bytes);
  ASSERT_TRUE(action_fields);
  EXPECT_EQ((*action_fields)[2], (KeyField{"request", request->key.Hex()}));
}

TEST(KeyRecords, HoldNothingOfThisMachine) {
  const auto request = test::RequestOf(test::FixedInputs());
  const auto action = test::ActionOf(test::FixedInputs());
  for (const char* name : {"HOME", "PWD", "USER", "TMPDIR", "HOSTNAME"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || std::string_view(value).size() < 4) continue;
    EXPECT_EQ((request->bytes + action->bytes).find(value), std::string::npos) << name;
  }
}

TEST(KeyRecords, GiveTheSpecBack) {
  for (const KernelSpec& spec : test::FixedSpecs()) {
    test::KeyInputs inputs = test::FixedInputs();
    inputs.spec = spec;
    EXPECT_EQ(SpecOfRequestRecord(test::RequestOf(inputs)->bytes), spec);
  }
  EXPECT_EQ(SpecOfRequestRecord(test::ActionOf(test::FixedInputs())->bytes).error().code,
            ErrorCode::kCorrupt);
}

TEST(KeyRecords, OnlyWhatTheWriterCouldHaveWrittenIsRead) {
  const std::string request = test::RequestOf(test::FixedInputs())->bytes;
  const std::string action = test::ActionOf(test::FixedInputs())->bytes;
  for (const std::string* record : {&request, &action}) {
    for (std::size_t n = 0; n < record->size(); ++n) {
      ASSERT_FALSE(DecodeKeyRecord(std::string_view(*record).substr(0, n))) << n;
    }
    ASSERT_FALSE(DecodeKeyRecord(*record + std::string(1, '\0')));
    ASSERT_FALSE(DecodeKeyRecord(*record + *record));
    // A flipped bit is refused or makes the record of something else, never a second spelling.
    for (std::size_t bit = 0; bit < 8 * record->size(); ++bit) {
      std::string flipped = *record;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      const auto fields = DecodeKeyRecord(flipped);
      if (!fields) continue;
      const auto differences = DiffKeyRecords(*record, flipped);
      ASSERT_TRUE(differences);
      ASSERT_FALSE(differences->empty()) << "bit " << bit;
    }
  }
  EXPECT_FALSE(DecodeKeyRecord(""));
}

/// The request record of FixedInputs with `from` replaced by `to` (lengths not touched).
std::string Replaced(std::string_view from, std::string_view to) {
  std::string bytes = test::RequestOf(test::FixedInputs())->bytes;
  const std::size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos);
  bytes.replace(at, from.size(), to);
  return bytes;
}

TEST(KeyRecords, OfAnotherSchemaOrWithUnknownWordsAreUnsupportedNotCorrupt) {
  std::string newer = test::RequestOf(test::FixedInputs())->bytes;
  for (const char schema : {1, 3}) {
    newer[kFieldHeaderBytes] = schema;
    EXPECT_EQ(DecodeKeyRecord(newer).error().code, ErrorCode::kUnsupported);
    EXPECT_NE(DecodeKeyRecord(newer).error().message.find("schema " +
                                                          std::to_string(static_cast<int>(schema))),
              std::string::npos);
  }
  EXPECT_EQ(DecodeKeyRecord(Replaced("bf16", "bf17")).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(DecodeKeyRecord(Replaced("row_major", "hilbert_c")).error().code,
            ErrorCode::kUnsupported);
  EXPECT_EQ(DecodeKeyRecord(Replaced("--fmad", "--fmax")).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(DecodeKeyRecord(Replaced("cubin", "ltoir")).error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(DecodeKeyRecord(Replaced("c++17", "c++20")).error().code, ErrorCode::kUnsupported);
}

TEST(KeyRecords, NamesAndOrderAreHeldToTheRules) {
  EXPECT_EQ(DecodeKeyRecord(Replaced("keys/unit.cu", "/eys/unit.cu")).error().code,
            ErrorCode::kCorrupt);
  EXPECT_EQ(DecodeKeyRecord(Replaced("keys/inner.cuh", "keys//nner.cuh")).error().code,
            ErrorCode::kCorrupt);
  EXPECT_EQ(DecodeKeyRecord(Replaced("keys/inner.cuh", "aeys/inner.cuh")).error().code,
            ErrorCode::kCorrupt)
      << "headers out of order";
  EXPECT_EQ(DecodeKeyRecord(Replaced("keys\x01", "KEYS\x01")).error().code, ErrorCode::kCorrupt)
      << "an invalid family name";
}

TEST(FieldReader, NeverLeavesItsBytes) {
  std::string bytes;
  FieldWriter out(bytes);
  out.U32(1, 0xffffffffu);
  out.Text(2, "text");
  out.I32(3, -1);
  out.U64(4, 1);
  out.Digest32(5, FileDigest{});
  Random random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string mutated = bytes.substr(0, Below(random, bytes.size() + 1));
    for (int flips = 0; flips < 3 && !mutated.empty(); ++flips) {
      mutated[Below(random, mutated.size())] = static_cast<char>(random.Next());
    }
    FieldReader reader(mutated);
    std::size_t total = 0;
    while (!reader.AtEnd()) {
      const auto field = reader.Next();
      if (!field) break;
      total += kFieldHeaderBytes + field->value.size();
    }
    ASSERT_LE(total, mutated.size());
  }
}

TEST(ArtifactKeys, HexIsReadBackAndOnlyHex) {
  const ArtifactKey key = test::RequestOf(test::FixedInputs())->key;
  EXPECT_EQ(key.Hex().size(), 64u);
  EXPECT_EQ(ParseArtifactKey(key.Hex()), key);
  std::string upper = key.Hex();
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  for (const std::string& bad :
       {std::string(), key.Hex() + "0", key.Hex().substr(1), upper, "g" + key.Hex().substr(1)}) {
    EXPECT_EQ(ParseArtifactKey(bad).error().code, ErrorCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace tilewright
