#include "tilewright/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "artifact/bundle/bundle_format.h"
#include "artifact/bundle/bundle_test_util.h"
#include "temp_folder.h"

namespace tilewright {
namespace {

using test::SomeArtifacts;
using test::TempFolder;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string Encode(std::span<const ArtifactData> artifacts,
                   const BundleWriteOptions& options = {}) {
  Result<std::string> bytes = EncodeBundle(artifacts, options);
  EXPECT_TRUE(bytes) << bytes.error().message;
  return bytes ? *bytes : std::string();
}

std::shared_ptr<const Bundle> Parse(std::string_view bytes) {
  auto bundle = Bundle::FromBytes(bytes);
  EXPECT_TRUE(bundle) << bundle.error().message;
  return bundle ? *bundle : nullptr;
}

TEST(Bundle, GivesBackWhatWasPutIn) {
  SomeArtifacts some;
  const std::vector<ArtifactData> artifacts = some.MakeSeveral(20);
  ASSERT_EQ(some.problem(), "");
  const std::string bytes = Encode(artifacts);
  const auto bundle = Parse(bytes);
  ASSERT_EQ(bundle->size(), 20u);
  for (const ArtifactData& want : artifacts) {
    const auto i = bundle->Find(want.request);
    ASSERT_TRUE(i);
    const Result<ArtifactData> got = bundle->Load(*i);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->spec, want.spec);
    EXPECT_EQ(got->request, want.request);
    EXPECT_EQ(got->action, want.action);
    EXPECT_EQ(got->request_record, want.request_record);
    EXPECT_EQ(got->action_record, want.action_record);
    EXPECT_EQ(got->compiler, want.compiler);
    EXPECT_EQ(got->symbol, want.symbol);
    EXPECT_EQ(got->launch.threads, 128u);
    EXPECT_EQ(got->launch.dynamic_smem_bytes, 4096u);
    EXPECT_EQ(got->launch_abi, 3u);
    EXPECT_EQ(got->resources, want.resources);
    EXPECT_EQ(got->min_driver, 13000u);
    EXPECT_EQ(got->cubin, want.cubin);
    EXPECT_EQ(got->ptx, want.ptx);
    EXPECT_EQ(got->source, want.source);
    EXPECT_EQ(got->compile_ms, 0);
    EXPECT_EQ(got->log, "");
  }
  EXPECT_EQ(bundle->Verify().good, 20u);
  EXPECT_TRUE(bundle->Verify().troubles.empty());
  EXPECT_FALSE(bundle->Find(some.Make(20).request));
  EXPECT_EQ(bundle->Load(20).error().code, ErrorCode::kInvalidArgument);
}

// An entry of a bundle must be fit for every other place an artifact goes to.
TEST(Bundle, WhatItLoadsCanBeStoredAsAnEntry) {
  SomeArtifacts some;
  const std::string bytes = Encode(some.MakeSeveral(3));
  const auto bundle = Parse(bytes);
  const Result<std::string> entry = EncodeArtifact(*bundle->Load(1));
  ASSERT_TRUE(entry) << entry.error().message;
  const Result<ArtifactData> back = DecodeArtifact(*entry);
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->cubin, bundle->Load(1)->cubin);
}

TEST(Bundle, EqualArtifactsGiveEqualBytesInAnyOrder) {
  SomeArtifacts some, others;
  std::vector<ArtifactData> artifacts = some.MakeSeveral(12);
  const std::string first = Encode(artifacts);
  std::reverse(artifacts.begin(), artifacts.end());
  EXPECT_EQ(Encode(artifacts), first);
  std::rotate(artifacts.begin(), artifacts.begin() + 5, artifacts.end());
  // What belongs to a moment or a machine is not in it.
  for (ArtifactData& artifact : artifacts) {
    artifact.compile_ms = 99;
    artifact.log = "another log";
  }
  EXPECT_EQ(Encode(artifacts), first);
  EXPECT_EQ(Encode(others.MakeSeveral(12)), first);
}

TEST(Bundle, TwoArtifactsOfOneRequestAreRefused) {
  SomeArtifacts some;
  SomeArtifacts::Choice newer;
  newer.compiler.version = "13.1";
  const std::vector<ArtifactData> artifacts{some.Make(1), some.Make(2), some.Make(1, newer)};
  const Result<std::string> bytes = EncodeBundle(artifacts);
  ASSERT_FALSE(bytes);
  EXPECT_EQ(bytes.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(bytes.error().message, HasSubstr(artifacts[0].request.Hex()));
}

TEST(Bundle, AnArtifactThatContradictsItsRecordsIsRefused) {
  SomeArtifacts some;
  const ArtifactData sound = some.Make(1), other = some.Make(2);
  const auto refusal = [](const ArtifactData& artifact) {
    const Result<std::string> bytes = EncodeBundle(std::span(&artifact, 1));
    if (bytes) return std::string("accepted");
    EXPECT_EQ(bytes.error().code, ErrorCode::kInvalidArgument);
    return bytes.error().message;
  };
  EXPECT_EQ(refusal(sound), "accepted");
  ArtifactData bad = sound;
  bad.cubin = "";
  EXPECT_THAT(refusal(bad), HasSubstr("no cubin"));
  bad = sound;
  bad.request = other.request;
  EXPECT_THAT(refusal(bad), HasSubstr("request record"));
  bad = sound;
  bad.spec = other.spec;
  EXPECT_THAT(refusal(bad), HasSubstr("another spec"));
  bad = sound;
  bad.launch_abi = 4;
  EXPECT_THAT(refusal(bad), HasSubstr("launch ABI 4"));
  bad = sound;
  bad.symbol = other.symbol;
  EXPECT_THAT(refusal(bad), HasSubstr("symbol"));
  bad = sound;
  bad.action_record = other.action_record;
  EXPECT_THAT(refusal(bad), HasSubstr("action record"));
  bad = sound;
  bad.compiler.version = "13.1";
  EXPECT_THAT(refusal(bad), HasSubstr("action record"));
}

TEST(Bundle, EqualPayloadsAreStoredOnce) {
  SomeArtifacts some;
  SomeArtifacts::Choice choice;
  choice.cubin = test::RandomText(7, 10000);
  std::vector<ArtifactData> artifacts;
  for (int i = 0; i < 10; ++i) artifacts.push_back(some.Make(i, choice));
  const std::string bytes = Encode(artifacts);
  EXPECT_LT(bytes.size(), 25000u);
  const auto bundle = Parse(bytes);
  for (std::size_t i = 1; i < 10; ++i) {
    EXPECT_EQ(bundle->entry(i).offset, bundle->entry(0).offset);
    EXPECT_EQ(bundle->Load(i)->cubin, *choice.cubin);
  }
  EXPECT_TRUE(bundle->Verify().troubles.empty());
}

TEST(Bundle, PayloadsLieAtMultiplesOf64) {
  SomeArtifacts some;
  const std::string bytes = Encode(some.MakeSeveral(9));
  const auto bundle = Parse(bytes);
  for (std::size_t i = 0; i < bundle->size(); ++i) EXPECT_EQ(bundle->entry(i).offset % 64, 0u);
}

TEST(Bundle, PtxAndSourceCanBeLeftOut) {
  SomeArtifacts some;
  BundleWriteOptions bare;
  bare.with_ptx = bare.with_source = false;
  const std::vector<ArtifactData> artifacts = some.MakeSeveral(2);
  const std::string bytes = Encode(artifacts, bare);
  const auto bundle = Parse(bytes);
  const Result<ArtifactData> got = bundle->Load(0);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->ptx, "");
  EXPECT_EQ(got->source, "");
  EXPECT_FALSE(got->cubin.empty());
  EXPECT_LT(bytes.size(), Encode(artifacts).size());
}

TEST(Bundle, OneWithoutEntriesIsABundle) {
  const std::string bytes = Encode({});
  const auto bundle = Parse(bytes);
  EXPECT_EQ(bundle->size(), 0u);
  EXPECT_FALSE(bundle->Find(ArtifactKey{}));
  EXPECT_TRUE(bundle->Verify().troubles.empty());
  EXPECT_TRUE(bundle->compat().archs.empty());
  TempFolder folder;
  EXPECT_TRUE(Bundle::Open(folder.Write("empty.twb", bytes)));
}

TEST(Bundle, NamesItsContentByADigest) {
  SomeArtifacts some;
  const std::string one = Encode(some.MakeSeveral(3)), two = Encode(some.MakeSeveral(4));
  EXPECT_EQ(Parse(one)->Digest().size(), 64u);
  EXPECT_EQ(BundleDigest(one).value(), Parse(one)->Digest());
  EXPECT_FALSE(BundleDigest(one.substr(0, 100)));
  EXPECT_NE(Parse(one)->Digest(), Parse(two)->Digest());
}

TEST(Bundle, CompatListsWhatTheEntriesNeed) {
  SomeArtifacts some;
  SomeArtifacts::Choice ampere;
  ampere.arch = {80, 0};
  ampere.min_driver = 12020;
  ampere.compiler.version = "12.2";
  const std::vector<ArtifactData> artifacts{some.Make(1), some.Make(1, ampere), some.Make(2)};
  const std::string bytes = Encode(artifacts);
  const BundleCompat compat = Parse(bytes)->compat();
  EXPECT_EQ(compat.format_major, 1u);
  EXPECT_EQ(compat.format_minor, 0u);
  EXPECT_THAT(compat.archs, ::testing::ElementsAre(CudaArch{80, 0}, CudaArch{90, 'a'}));
  EXPECT_THAT(compat.launch_abis, ::testing::ElementsAre(3u));
  EXPECT_EQ(compat.lowest_driver, 12020u);
  EXPECT_EQ(compat.highest_driver, 13000u);
  ASSERT_EQ(compat.compilers.size(), 2u);
  EXPECT_EQ(compat.compilers[0].version, "12.2");
}

TEST(Bundle, EachEntryIsCheckedForItselfAndTheFieldIsNamed) {
  SomeArtifacts some;
  SomeArtifacts::Choice ampere;
  ampere.arch = {80, 0};
  ampere.min_driver = 12020;
  const ArtifactData hopper = some.Make(1), old = some.Make(1, ampere);
  const std::string bytes = Encode(std::vector<ArtifactData>{hopper, old});
  const auto bundle = Parse(bytes);
  const std::size_t h = *bundle->Find(hopper.request), a = *bundle->Find(old.request);
  const auto field = [&](std::size_t i, const BundleNeeds& needs) {
    const auto refusal = bundle->Check(i, needs);
    const auto same = Bundle::Check(*bundle->Load(i), needs);
    EXPECT_EQ(refusal.has_value(), same.has_value());
    return refusal ? refusal->ToString() : "serves";
  };
  EXPECT_EQ(field(h, {}), "serves");
  EXPECT_EQ(field(h, {.launch_abi = 3, .compute_capability = 90, .driver = 13000}), "serves");
  EXPECT_EQ(field(h, {.launch_abi = 4}), "launch_abi: the entry has 3, but this process has 4");
  EXPECT_EQ(field(h, {.compute_capability = 86}),
            "arch: the entry has sm_90a, but this process has compute capability 8.6");
  EXPECT_EQ(field(a, {.compute_capability = 86}), "serves");
  EXPECT_EQ(field(a, {.compute_capability = 90}),
            "arch: the entry has sm_80, but this process has compute capability 9.0");
  EXPECT_EQ(field(h, {.driver = 12080}),
            "min_driver: the entry needs 13000, but this process has 12080");
  EXPECT_EQ(field(a, {.driver = 12080}), "serves");
}

TEST(Bundle, AnEntryOfANewerFormatIsRefusedAndOthersServe) {
  SomeArtifacts some;
  std::string bytes = Encode(some.MakeSeveral(3));
  const std::size_t record =
      bundle_format::kHeaderBytes +
      bundle_format::Load<std::uint32_t>(bytes.data() + bundle_format::kCompatBytesAt) +
      3 * bundle_format::kKeyBytes + bundle_format::kRecordBytes;
  bytes[record] = 2;  // of entry 1
  test::Reseal(bytes);
  const auto bundle = Parse(bytes);
  EXPECT_EQ(bundle->Check(1, {})->ToString(), "format: the entry has 2, but this process has 1");
  EXPECT_EQ(bundle->Load(1).error().code, ErrorCode::kUnsupported);
  EXPECT_TRUE(bundle->Load(0));
  EXPECT_FALSE(bundle->Check(2, {}));
  // That is no damage; damage of its payloads is.
  Bundle::VerifyResult verified = bundle->Verify();
  EXPECT_EQ(verified.good, 2u);
  EXPECT_EQ(verified.newer, 1u);
  EXPECT_THAT(verified.troubles, IsEmpty());
  bytes[bundle->entry(1).offset] ^= 1;
  verified = Parse(bytes)->Verify();
  EXPECT_EQ(verified.good, 2u);
  EXPECT_EQ(verified.newer, 0u);
  ASSERT_EQ(verified.troubles.size(), 1u);
  EXPECT_THAT(verified.troubles[0], HasSubstr("its cubin differs"));
}

TEST(Bundle, ADamagedPayloadIsToldAtLoadAndOthersServe) {
  SomeArtifacts some;
  SomeArtifacts::Choice choice;
  std::vector<ArtifactData> artifacts;
  for (int i = 0; i < 3; ++i) artifacts.push_back(some.Make(i));
  std::string bytes = Encode(artifacts);
  bytes[Parse(bytes)->entry(1).offset + 10] ^= 4;
  const auto bundle = Parse(bytes);  // payloads are not read by opening
  const Result<ArtifactData> bad = bundle->Load(1);
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().code, ErrorCode::kCorrupt);
  EXPECT_THAT(bad.error().message, HasSubstr("cubin"));
  EXPECT_THAT(bad.error().message, HasSubstr(bundle->entry(1).request.Hex()));
  EXPECT_EQ(bundle->Check(1, {})->field, "payload_digest");
  EXPECT_FALSE(bundle->Load(1));  // and stays so
  EXPECT_TRUE(bundle->Load(0));
  EXPECT_FALSE(bundle->Check(2, {}));
  const Bundle::VerifyResult verified = bundle->Verify();
  EXPECT_EQ(verified.good, 2u);
  EXPECT_EQ(verified.troubles.size(), 1u);
}

TEST(Bundle, BundlesMergeIntoWhatOneBuildWouldHaveMade) {
  SomeArtifacts some;
  const std::vector<ArtifactData> all = some.MakeSeveral(8);
  const std::string left = Encode(std::span(all).first(5)), right = Encode(std::span(all).last(5));
  const auto a = Parse(left), b = Parse(right);
  const std::vector<const Bundle*> ab{a.get(), b.get()}, ba{b.get(), a.get()};
  EXPECT_EQ(*MergeBundles(ab), Encode(all));
  EXPECT_EQ(*MergeBundles(ba), Encode(all));

  SomeArtifacts::Choice newer;
  newer.compiler.version = "13.1";
  const std::string other = Encode(std::vector<ArtifactData>{some.Make(4, newer)});
  const auto c = Parse(other);
  const std::vector<const Bundle*> ac{a.get(), c.get()};
  const Result<std::string> merged = MergeBundles(ac);
  ASSERT_FALSE(merged);
  EXPECT_EQ(merged.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(merged.error().message, HasSubstr("13.1"));
}

TEST(BundleFile, IsMappedAndFoundByItsPath) {
  SomeArtifacts some;
  TempFolder folder;
  const std::string bytes = Encode(some.MakeSeveral(5)), path = folder.Path("k.twb");
  ASSERT_TRUE(WriteBundleFile(path, bytes));
  EXPECT_EQ(test::ReadWhole(path), bytes);
  const auto bundle = Bundle::Open(path);
  ASSERT_TRUE(bundle) << bundle.error().message;
  EXPECT_EQ((*bundle)->path(), path);
  EXPECT_EQ((*bundle)->file_bytes(), bytes.size());
  EXPECT_EQ((*bundle)->size(), 5u);
  const Result<ArtifactData> data = (*bundle)->Load(3);
  ASSERT_TRUE(data);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data->cubin.data()) % 64, 0u);
  EXPECT_TRUE((*bundle)->Verify().troubles.empty());
}

TEST(BundleFile, WhatIsNoBundleFileIsRefusedWithItsPath) {
  TempFolder folder;
  const auto refusal = [](const std::string& path) {
    const auto bundle = Bundle::Open(path);
    EXPECT_FALSE(bundle) << path;
    if (bundle) return Error{};
    EXPECT_THAT(bundle.error().message, HasSubstr(path));
    return bundle.error();
  };
  EXPECT_EQ(refusal(folder.Path("absent.twb")).code, ErrorCode::kNotFound);
  EXPECT_EQ(refusal(folder.Write("file", "x") + "/k.twb").code, ErrorCode::kNotFound);
  EXPECT_EQ(refusal(folder.Path("")).code, ErrorCode::kIo);  // a folder
  ASSERT_EQ(::mkfifo(folder.Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(refusal(folder.Path("pipe")).code, ErrorCode::kIo);  // and does not wait for a writer
  EXPECT_EQ(refusal("/dev/null").code, ErrorCode::kIo);
  EXPECT_EQ(refusal(folder.Write("zero", "")).code, ErrorCode::kCorrupt);
  EXPECT_EQ(refusal(folder.Write("text", std::string(500, 'x'))).code, ErrorCode::kCorrupt);
  SomeArtifacts some;
  std::string newer = Encode(some.MakeSeveral(1));
  newer[8] = 2;
  const Error unsupported = refusal(folder.Write("newer", newer));
  EXPECT_EQ(unsupported.code, ErrorCode::kUnsupported);
  EXPECT_THAT(unsupported.message, HasSubstr("format: the bundle has 2.0, this version reads 1.0"));
}

TEST(BundleFile, ReplacedByRenamingServesTheOldContentToWhoHasItOpen) {
  SomeArtifacts some;
  TempFolder folder;
  const std::string path = folder.Path("k.twb");
  ASSERT_TRUE(WriteBundleFile(path, Encode(some.MakeSeveral(5))));
  const auto old = Bundle::Open(path);
  ASSERT_TRUE(WriteBundleFile(path, Encode(some.MakeSeveral(2))));
  EXPECT_EQ((*old)->Verify().good, 5u);
  EXPECT_EQ((*Bundle::Open(path))->size(), 2u);
}

TEST(BundleFile, WritingWhereThereIsNoFolderIsToldByName) {
  TempFolder folder;
  const Status status = WriteBundleFile(folder.Path("absent/k.twb"), "x");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kNotFound);
}

std::size_t Lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}
std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

TEST(BundleFile, TenThousandOpensLeaveNoDescriptorAndNoMapping) {
  SomeArtifacts some;
  TempFolder folder;
  const std::string bytes = Encode(some.MakeSeveral(3));
  const std::string good = folder.Write("good.twb", bytes);
  std::string flipped = bytes;
  flipped[bundle_format::kHeaderBytes + 40] ^= 1;
  const std::string bad = folder.Write("bad.twb", flipped);
  const auto once = [&](int i) {
    ASSERT_TRUE((*Bundle::Open(good))->Load(static_cast<std::size_t>(i % 3)));
    ASSERT_FALSE(Bundle::Open(bad));
  };
  for (int i = 0; i < 50; ++i) once(i);
  const std::size_t descriptors = OpenDescriptors(),
                    mappings = Lines(test::ReadWhole("/proc/self/maps"));
  for (int i = 0; i < 5000; ++i) once(i);
  EXPECT_EQ(OpenDescriptors(), descriptors);
  // The heap may grow by a mapping of its own; thousands of bundles would not hide there.
  EXPECT_LE(Lines(test::ReadWhole("/proc/self/maps")), mappings + 8);
}

// The layout as docs/bundle.md has it, read here by its numbers and not by the library's names.
TEST(BundleFormat, IsTheOneWrittenDown) {
  SomeArtifacts some;
  const ArtifactData one = some.Make(1);
  const std::string bytes = Encode(std::span(&one, 1));
  const auto u16 = [&](std::size_t at) { return bundle_format::Load<std::uint16_t>(&bytes[at]); };
  const auto u32 = [&](std::size_t at) { return bundle_format::Load<std::uint32_t>(&bytes[at]); };
  const auto u64 = [&](std::size_t at) { return bundle_format::Load<std::uint64_t>(&bytes[at]); };
  EXPECT_EQ(bytes.substr(0, 8), "TWBUNDLE");
  EXPECT_EQ(u32(8), 1u);
  EXPECT_EQ(u32(12), 0u);
  EXPECT_EQ(u64(16), bytes.size());
  const std::size_t compat = u32(48);
  // arch list, ABI list, two drivers, compiler list; identity: five texts with a length each
  EXPECT_EQ(compat, (4 + 4 + 4 + 4 + 8 + 4 + 5 * 4 + 5 + 4 + 8 + 4 + 8 + 7) / 8 * 8u);
  EXPECT_EQ(u64(24), compat + 32 + 40 + 4 * 48);
  EXPECT_EQ(u64(32), (192 + u64(24) + 63) / 64 * 64);
  EXPECT_EQ(u32(40), 1u);
  EXPECT_EQ(u32(44), 4u);
  EXPECT_EQ(bytes.substr(64, 32),
            bundle_format::BytesOf(*Sha256(std::string_view(bytes).substr(192, u64(24)))));
  EXPECT_EQ(bytes.substr(96, 32), bundle_format::BytesOf(*Sha256("tilewright bundle manifest 1\n" +
                                                                 bytes.substr(0, 96))));
  EXPECT_EQ(bytes.substr(128, 64), std::string(64, '\0'));

  EXPECT_EQ(u32(192), 1u);
  EXPECT_EQ(u16(196), 90u);
  EXPECT_EQ(u16(198), 'a');
  EXPECT_EQ(u32(200), 1u);
  EXPECT_EQ(u32(204), 3u);
  EXPECT_EQ(u32(208), 13000u);
  EXPECT_EQ(u32(212), 13000u);
  EXPECT_EQ(u32(216), 1u);
  EXPECT_EQ(u32(220), 5u);
  EXPECT_EQ(bytes.substr(224, 5), "nvrtc");

  const std::size_t key = 192 + compat, record = key + 32, blobs = record + 40;
  EXPECT_EQ(bytes.substr(key, 32), bundle_format::BytesOf(one.request.bytes));
  EXPECT_EQ(u32(record), 1u);
  EXPECT_EQ(u16(record + 4), 90u);
  EXPECT_EQ(u16(record + 6), 'a');
  EXPECT_EQ(u32(record + 8), 3u);
  EXPECT_EQ(u32(record + 12), 13000u);
  EXPECT_EQ(u32(record + 16), 0u);
  for (std::size_t part = 0; part < 4; ++part) EXPECT_EQ(u32(record + 20 + 4 * part), part);
  EXPECT_EQ(u32(record + 36), 0u);
  const auto blob = [&](std::size_t k) {
    const std::size_t at = blobs + 48 * k;
    std::string payload = bytes.substr(u64(at), u64(at + 8));
    EXPECT_EQ(u64(at) % 64, 0u);
    EXPECT_EQ(bytes.substr(at + 16, 32), bundle_format::BytesOf(*Sha256(payload)));
    return payload;
  };
  EXPECT_EQ(u64(blobs), u64(32));
  EXPECT_EQ(blob(1), one.cubin);
  EXPECT_EQ(blob(2), one.ptx);
  EXPECT_EQ(blob(3), one.source);
  const std::size_t description = u64(blobs);
  const std::uint32_t numbers[] = {128, 4096, 3, 13000, 101, 0, 0, 0, 0, 0, 0};
  for (std::size_t i = 0; i < 11; ++i) EXPECT_EQ(u32(description + 4 * i), numbers[i]) << i;
  EXPECT_EQ(u32(description + 44), one.request_record.size());
  EXPECT_EQ(bytes.substr(description + 48, one.request_record.size()), one.request_record);
  const std::size_t action = description + 48 + one.request_record.size();
  EXPECT_EQ(u32(action), one.action_record.size());
  EXPECT_EQ(bytes.substr(action + 4, one.action_record.size()), one.action_record);
  EXPECT_EQ(blob(0).size(), 52 + one.request_record.size() + one.action_record.size());
}

}  // namespace
}  // namespace tilewright
