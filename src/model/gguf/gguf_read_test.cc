#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <iterator>

#include "core/formats/formats.h"
#include "model/gguf/gguf_test_util.h"
#include "tilewright/gguf.h"

namespace tilewright {
namespace {

using test::Bytes;
using test::RawGguf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Expects an error of this code whose message has all the parts.
template <class T>
void ExpectError(const Result<T>& result, ErrorCode code,
                 std::initializer_list<std::string_view> parts) {
  ASSERT_FALSE(result.has_value()) << "expected an error";
  EXPECT_STREQ(ErrorCodeName(result.error().code), ErrorCodeName(code)) << result.error().message;
  for (const std::string_view part : parts)
    EXPECT_THAT(result.error().message, HasSubstr(std::string(part)));
}

// A file with one tensor.
Result<GgufFile> OneTensor(std::vector<std::int64_t> shape, std::uint32_t type,
                           std::uint64_t offset, std::size_t data) {
  static std::vector<Bytes> kept;  // the files are views
  RawGguf raw;
  raw.Header(1, 0).Tensor("blk.0.ffn_down.weight", std::move(shape), type, offset).Data(data);
  kept.push_back(raw.bytes);
  return GgufFile::Parse(kept.back(), "test.gguf");
}

TEST(GgufRead, EveryValueTypeIsReadBack) {
  const Bytes bytes = test::SampleFile();
  const auto file = GgufFile::Parse(bytes, "test.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->entries().size(), 17u);
  EXPECT_EQ(file->String("general.architecture").value(), "llama");
  EXPECT_EQ(file->U32("t.u8").value(), 200u);
  EXPECT_EQ(file->I32("t.i8").value(), -100);
  EXPECT_EQ(file->U32("t.u16").value(), 60000u);
  EXPECT_EQ(file->I32("t.i16").value(), -30000);
  EXPECT_EQ(file->U32("t.u32").value(), 4000000000u);
  EXPECT_EQ(file->I32("t.i32").value(), -2000000000);
  EXPECT_EQ(file->U64("t.u64").value(), 1ull << 63);
  EXPECT_EQ(file->I64("t.i64").value(), -(1ll << 62));
  EXPECT_EQ(file->F32("t.f32").value(), 1.5f);
  EXPECT_EQ(file->F32("t.f64").value(), 2.5f);
  EXPECT_TRUE(file->Bool("t.bool").value());
  EXPECT_THAT(file->I32s("t.ints").value(), ElementsAre(1, -2, 3));
  EXPECT_THAT(file->F32s("t.floats").value(), ElementsAre(0.5f, -0.25f));
  EXPECT_THAT(file->Strings("t.words").value(), ElementsAre("one", "", "three"));

  const GgufValue* nested = file->Find("t.nested");
  ASSERT_NE(nested, nullptr);
  EXPECT_EQ(nested->TypeText(), "array of array");
  const auto elements = nested->Elements();
  ASSERT_EQ(elements.size(), 2u);
  EXPECT_EQ(elements[0].Elements()[1].Unsigned(), 8u);
  EXPECT_EQ(elements[1].Elements()[0].Elements()[0].String(), "deep");
  EXPECT_EQ(file->Find("t.bools")->Elements()[1].Bool(), true);
}

TEST(GgufRead, TensorsAreViewsIntoTheFile) {
  const Bytes bytes = test::SampleFile();
  const auto file = GgufFile::Parse(bytes, "test.gguf");
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 4u);
  const GgufTensor* weight = file->FindTensor("weight");
  ASSERT_NE(weight, nullptr);
  EXPECT_EQ(weight->dtype, DataType::kQ4_0);
  EXPECT_EQ(weight->bytes, 72u);
  EXPECT_EQ(weight->offset % 32, 0u);
  const auto view = file->View("weight");
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ(view->cols(), 64);
  EXPECT_EQ(view->rows(), 2);
  EXPECT_EQ(view->stride[1], 64);
  EXPECT_EQ(view->data, bytes.data() + weight->offset);
  EXPECT_EQ(std::to_integer<int>(file->Bytes(*weight)[0]), 32);
  EXPECT_EQ(file->View("half")->shape, (std::array<std::int64_t, 4>{3, 2, 2, 1}));
  EXPECT_EQ(file->tensor_bytes(), 32u + 72 + 24 + 18);
}

TEST(GgufRead, MissingKeysAndTensorsAreNamed) {
  const Bytes bytes = test::SampleFile();
  const auto file = GgufFile::Parse(bytes, "test.gguf");
  ASSERT_TRUE(file);
  ExpectError(file->U32("llama.block_count"), ErrorCode::kNotFound,
              {"test.gguf", "\"llama.block_count\"", "missing"});
  ExpectError(file->Strings("tokenizer.ggml.tokens"), ErrorCode::kNotFound,
              {"tokenizer.ggml.tokens"});
  ExpectError(file->View("output.weight"), ErrorCode::kNotFound, {"\"output.weight\"", "missing"});
  EXPECT_EQ(file->FindTensor(""), nullptr);
  EXPECT_EQ(file->U32("absent", 5).value(), 5u);
  EXPECT_EQ(file->F32("absent", 0.5f).value(), 0.5f);
  EXPECT_EQ(file->Bool("absent", true).value(), true);
  EXPECT_EQ(file->String("absent", "x").value(), "x");
}

TEST(GgufRead, WrongTypesNameTheKeyAndBothTypes) {
  const Bytes bytes = test::SampleFile();
  const auto file = GgufFile::Parse(bytes, "test.gguf");
  ASSERT_TRUE(file);
  ExpectError(file->U32("t.i8"), ErrorCode::kCorrupt,
              {"\"t.i8\"", "must be u32", "is i8 of value -100"});
  ExpectError(file->U32("t.u64"), ErrorCode::kCorrupt,
              {"must be u32", "is u64 of value 9223372036854775808"});
  ExpectError(file->I64("t.u64"), ErrorCode::kCorrupt, {"must be i64"});
  ExpectError(file->I32("t.u32"), ErrorCode::kCorrupt, {"must be i32", "4000000000"});
  ExpectError(file->U32("t.words"), ErrorCode::kCorrupt, {"must be u32", "is array of string"});
  ExpectError(file->F32("t.u8"), ErrorCode::kCorrupt, {"must be f32", "is u8"});
  ExpectError(file->Bool("t.u8"), ErrorCode::kCorrupt, {"must be bool"});
  ExpectError(file->String("t.words"), ErrorCode::kCorrupt, {"must be string"});
  ExpectError(file->Strings("t.ints"), ErrorCode::kCorrupt,
              {"must be array of string", "is array of i32"});
  ExpectError(file->U32s("t.ints"), ErrorCode::kCorrupt,
              {"must be array of u32"});  // one of them is -2
  ExpectError(file->I32s("t.words"), ErrorCode::kCorrupt, {"must be array of i32"});
  ExpectError(file->F32s("t.ints"), ErrorCode::kCorrupt, {"must be array of f32"});
  // A value of the wrong type is no absent value.
  ExpectError(file->U32("t.words", 5), ErrorCode::kCorrupt, {"\"t.words\""});
}

TEST(GgufRead, VersionsTwoAndThreeAreRead) {
  for (const std::uint32_t version : {2u, 3u}) {
    RawGguf raw;
    raw.Header(0, 1, version).U32("k", 1);
    EXPECT_TRUE(raw.Parse()) << version;
  }
  for (const std::uint32_t version : {0u, 1u, 4u, 99u}) {
    RawGguf raw;
    raw.Header(0, 0, version);
    ExpectError(raw.Parse(), ErrorCode::kUnsupported,
                {"version " + std::to_string(version), "2 and 3"});
  }
}

TEST(GgufRead, ForeignFilesAreNamed) {
  RawGguf big_endian;
  big_endian.Header(0, 0, 0x03000000);
  ExpectError(big_endian.Parse(), ErrorCode::kUnsupported, {"big-endian"});
  ExpectError(RawGguf().Text("FUGG").Put<std::uint32_t>(3).Parse(), ErrorCode::kUnsupported,
              {"big-endian"});
  ExpectError(RawGguf().Text("tjgg").Put<std::uint32_t>(3).Parse(), ErrorCode::kUnsupported,
              {"before GGUF"});
  ExpectError(RawGguf().Text("PK\x03\x04 and more").Parse(), ErrorCode::kCorrupt,
              {"not a GGUF file", "PK\\x03\\x04"});
  ExpectError(RawGguf().Text("GG").Parse(), ErrorCode::kCorrupt, {"too few"});
}

TEST(GgufRead, AlignmentComesFromTheMetadata) {
  RawGguf raw;
  raw.Header(2, 1).U32("general.alignment", 64);
  raw.Tensor("a", {1}, 0, 0).Tensor("b", {1}, 0, 64).Data(68, 64);
  const auto file = raw.Parse();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->alignment(), 64u);
  EXPECT_EQ(file->FindTensor("b")->offset % 64, 0u);

  for (const std::uint32_t bad : {0u, 1u, 4u, 24u, 1u << 21, 0xffffffffu}) {
    RawGguf broken;
    broken.Header(0, 1).U32("general.alignment", bad);
    ExpectError(broken.Parse(), ErrorCode::kCorrupt,
                {"general.alignment", std::to_string(bad), "power of two"});
  }
  RawGguf typed;
  typed.Header(0, 1).Key("general.alignment", GgufType::kU64).Put<std::uint64_t>(32);
  ExpectError(typed.Parse(), ErrorCode::kCorrupt, {"general.alignment", "must be u32", "u64"});
}

TEST(GgufRead, UnsupportedTypesAreNamedWhenTheTensorIsAskedFor) {
  int tested = 0;
  for (std::uint32_t id = 0; FindGgmlType(id) != nullptr; ++id) {
    const GgmlTypeInfo& type = *FindGgmlType(id);
    if (type.dtype != DataType::kNone || type.block_elements == 0) continue;
    ++tested;
    const std::string name(type.name);
    const auto file = OneTensor({256, 1}, id, 0, 512);
    ASSERT_TRUE(file) << name << ": " << file.error().message;
    ExpectError(file->View("blk.0.ffn_down.weight"), ErrorCode::kUnsupported,
                {"tensor \"blk.0.ffn_down.weight\" has type " + name + ", which is not supported",
                 "convert the model to f32, f16, bf16, q4_0, ", "mxfp4"});
    ExpectError(file->Validate(), ErrorCode::kUnsupported, {name});
  }
  EXPECT_GT(tested, 5);
  const auto withdrawn = OneTensor({256}, 31, 0, 512);
  ASSERT_TRUE(withdrawn);
  ExpectError(withdrawn->Validate(), ErrorCode::kUnsupported,
              {"q4_0_4_4", "removed from the format"});
  const auto unknown = OneTensor({256}, 77, 0, 512);
  ASSERT_TRUE(unknown);
  ExpectError(unknown->Validate(), ErrorCode::kUnsupported, {"unknown type number 77"});
  EXPECT_TRUE(unknown->Bytes(unknown->tensors()[0]).empty());
}

TEST(GgufRead, ValidateCountsTheOtherTensorsOfUnsupportedTypes) {
  RawGguf raw;
  raw.Header(3, 0)
      .Tensor("a", {256}, 19, 0)
      .Tensor("b", {256}, 29, 64)
      .Tensor("c", {8}, 0, 128)
      .Data(160);
  const auto file = raw.Parse();
  ASSERT_TRUE(file) << file.error().message;
  ExpectError(file->Validate(), ErrorCode::kUnsupported, {"\"a\" has type iq1_s", "and 1 more"});
  EXPECT_TRUE(file->View("c"));
}

TEST(GgufRead, TheTypesWeRunHaveTheSizesOfTheBlockFormats) {
  std::vector<DataType> types = {DataType::kF32, DataType::kF16, DataType::kBF16, DataType::kF64,
                                 DataType::kI8,  DataType::kI32, DataType::kI64};
  for (const BlockFormat& format : kFormats) types.push_back(format.type);
  for (const DataType dtype : types) {
    const GgmlTypeInfo* type = FindGgmlType(dtype);
    ASSERT_NE(type, nullptr) << DataTypeName(dtype);
    EXPECT_EQ(type->name, DataTypeName(dtype));
    EXPECT_EQ(type->block_elements, GetTypeInfo(dtype).block_elements) << type->name;
    EXPECT_EQ(type->block_bytes, GetTypeInfo(dtype).block_bytes) << type->name;
    EXPECT_EQ(FindGgmlType(type->id), type);
  }
  EXPECT_EQ(FindGgmlType(DataType::kU4), nullptr);
  EXPECT_EQ(FindGgmlType(DataType::kNone), nullptr);
  EXPECT_EQ(FindGgmlType(std::uint32_t{43}), nullptr);
}

TEST(GgufRead, ShapesThatDoNotFitAreRefused) {
  ExpectError(OneTensor({100, 2}, 2, 0, 512), ErrorCode::kCorrupt,
              {"blk.0.ffn_down.weight", "dimension 0 is 100", "block of 32", "q4_0"});
  ExpectError(OneTensor({576, 2}, 14, 0, 4096), ErrorCode::kCorrupt,
              {"dimension 0 is 576", "block of 256", "q6_k"});
  ExpectError(OneTensor({8, 0}, 0, 0, 512), ErrorCode::kCorrupt, {"dimension 1 is 0"});
  ExpectError(OneTensor({-8}, 0, 0, 512), ErrorCode::kCorrupt, {"dimension 0 is -8"});
  ExpectError(OneTensor({1, 1, 1, 1, 1}, 0, 0, 512), ErrorCode::kCorrupt, {"5 dimensions"});
  ExpectError(OneTensor({1ll << 40, 1ll << 40}, 0, 0, 512), ErrorCode::kCorrupt, {"2^63 elements"});
  ExpectError(OneTensor({1ll << 62}, 28, 0, 512), ErrorCode::kCorrupt, {"2^64 bytes"});
  ExpectError(OneTensor({1ll << 60}, 0, 0, 512), ErrorCode::kCorrupt, {"truncated or damaged"});
}

TEST(GgufRead, PlacesThatDoNotFitAreRefused) {
  ExpectError(OneTensor({8}, 0, 8, 512), ErrorCode::kCorrupt, {"offset 8", "alignment 32"});
  ExpectError(OneTensor({8}, 0, 0xffffffffffffffe0u, 512), ErrorCode::kCorrupt,
              {"truncated or damaged"});
  ExpectError(OneTensor({9}, 0, 480, 512), ErrorCode::kCorrupt,
              {"36 bytes", "truncated or damaged"});
  EXPECT_TRUE(OneTensor({8}, 0, 480, 512));
  EXPECT_TRUE(OneTensor({}, 0, 0, 4));  // a scalar

  RawGguf overlap;
  overlap.Header(2, 0).Tensor("first", {16}, 0, 0).Tensor("second", {8}, 0, 32).Data(96);
  ExpectError(overlap.Parse(), ErrorCode::kCorrupt, {"\"first\" and \"second\" overlap"});
  RawGguf same;
  same.Header(2, 0).Tensor("first", {8}, 0, 32).Tensor("second", {8}, 0, 32).Data(96);
  ExpectError(same.Parse(), ErrorCode::kCorrupt, {"overlap"});
}

TEST(GgufRead, DuplicatesAreRefused) {
  RawGguf keys;
  keys.Header(0, 3).U32("a", 1).U32("b", 2).U32("a", 3);
  ExpectError(keys.Parse(), ErrorCode::kCorrupt, {"key \"a\" occurs twice"});
  RawGguf tensors;
  tensors.Header(2, 0).Tensor("t", {8}, 0, 0).Tensor("t", {8}, 0, 32).Data(64);
  ExpectError(tensors.Parse(), ErrorCode::kCorrupt, {"tensor \"t\" occurs twice"});
}

TEST(GgufRead, BadNamesAndValuesAreRefused) {
  ExpectError(RawGguf().Header(0, 1).U32("", 1).Text("pad").Parse(), ErrorCode::kCorrupt,
              {"0 bytes long"});
  ExpectError(RawGguf().Header(0, 1).U32(std::string(70000, 'k'), 1).Parse(), ErrorCode::kCorrupt,
              {"70000", "65535"});
  ExpectError(RawGguf().Header(1, 0).Tensor(std::string(300, 't'), {1}, 0, 0).Data(32).Parse(),
              ErrorCode::kCorrupt, {"300 bytes long"});
  ExpectError(RawGguf().Header(0, 1).Key("flag", GgufType::kBool).Put<std::uint8_t>(2).Parse(),
              ErrorCode::kCorrupt, {"\"flag\"", "bool of value 2"});
  ExpectError(
      RawGguf().Header(0, 1).Key("odd", static_cast<GgufType>(13)).Put<std::uint64_t>(0).Parse(),
      ErrorCode::kCorrupt, {"\"odd\"", "unknown value type 13"});
  // Control characters of a hostile file do not reach the terminal.
  const auto escaped = RawGguf().Header(0, 2).U32("\x1b[2J", 1).U32("\x1b[2J", 1).Parse();
  ExpectError(escaped, ErrorCode::kCorrupt, {"\\x1b[2J"});
}

TEST(GgufRead, DeepNestingIsRefused) {
  const auto nested = [](int depth) {
    RawGguf raw;
    raw.Header(0, 1).Key("deep", GgufType::kArray);
    for (int i = 1; i < depth; ++i) raw.Array(GgufType::kArray, 1);
    return raw.Array(GgufType::kU8, 1).Put<std::uint8_t>(1).Parse().has_value();
  };
  EXPECT_TRUE(nested(8));
  EXPECT_FALSE(nested(9));
  EXPECT_FALSE(nested(100000));
}

TEST(GgufOpen, WhatIsNoRegularFileIsRefused) {
  const test::TemporaryFolder folder;
  ExpectError(GgufFile::Open(folder.File("absent.gguf")), ErrorCode::kNotFound,
              {"absent.gguf", "No such file"});
  ExpectError(GgufFile::Open(folder.File("")), ErrorCode::kInvalidArgument, {"not a regular file"});
  test::WriteBytes(folder.File("empty.gguf"), {});
  ExpectError(GgufFile::Open(folder.File("empty.gguf")), ErrorCode::kCorrupt, {"empty"});
  ASSERT_EQ(::mkfifo(folder.File("pipe").c_str(), 0600), 0);
  ExpectError(GgufFile::Open(folder.File("pipe")), ErrorCode::kInvalidArgument,
              {"not a regular file"});
}

TEST(GgufOpen, AChangedFileIsNoticedAndAReplacedOneIsNot) {
  const test::TemporaryFolder folder;
  const std::string path = folder.File("m.gguf");
  test::WriteBytes(path, test::SampleFile());
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->CheckUnchanged());

  test::WriteBytes(folder.File("new.gguf"), Bytes(10));
  std::filesystem::rename(folder.File("new.gguf"), path);
  EXPECT_TRUE(file->CheckUnchanged());
  EXPECT_NE(test::ReadEverything(*file), 0u);

  test::WriteBytes(path, test::SampleFile());
  const auto second = GgufFile::Open(path);
  ASSERT_TRUE(second);
  std::ofstream(path, std::ios::app) << "more";
  ExpectError(second->CheckUnchanged(), ErrorCode::kIo,
              {"m.gguf", std::to_string(second->file_bytes())});
}

TEST(GgufOpen, AMovedFileKeepsItsViews) {
  const test::TemporaryFolder folder;
  test::WriteBytes(folder.File("m.gguf"), test::SampleFile());
  auto opened = GgufFile::Open(folder.File("m.gguf"));
  ASSERT_TRUE(opened);
  const std::uint64_t before = test::ReadEverything(*opened);
  GgufFile moved = std::move(*opened);
  EXPECT_EQ(test::ReadEverything(moved), before);
}

/// From now on no file of this process can be mapped, as on some network file systems; false where
/// the system does not allow that.
bool ForbidMappingFiles() {
  sock_filter filter[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                          BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 2),  // else allowed
                          BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[3])),
                          BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_ANONYMOUS, 0, 1),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                          BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENODEV)};
  const sock_fprog program{.len = std::size(filter), .filter = filter};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(GgufOpen, AFileThatTheSystemDoesNotMapIsRead) {
  const test::TemporaryFolder folder;
  const std::string path = folder.File("m.gguf");
  test::WriteBytes(path, test::SampleFile());
  const auto mapped = GgufFile::Open(path);
  ASSERT_TRUE(mapped);
  const std::uint64_t want = test::ReadEverything(*mapped);
  const pid_t child = ::fork();
  if (child == 0) {
    if (!ForbidMappingFiles()) ::_exit(77);
    const auto file = GgufFile::Open(path);
    if (!file) ::_exit(1);
    const bool same = test::ReadEverything(*file) == want;
    for (const GgufTensor& tensor : file->tensors()) file->Release(tensor);
    file->ReleaseAll();
    ::_exit(same && test::ReadEverything(*file) == want && file->CheckUnchanged() ? 0 : 2);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "the system allows no filter of calls";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Resident pages of this process that belong to files.
std::int64_t ResidentFilePages() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0, resident = 0, shared = 0;
  statm >> total >> resident >> shared;
  return shared;
}

TEST(GgufOpen, ReleaseGivesPagesBackAndTheyReturnUnchanged) {
  constexpr std::size_t kBytes = 32u << 20;
  const test::TemporaryFolder folder;
  {
    RawGguf raw;
    raw.Header(1, 0).Tensor("big", {static_cast<std::int64_t>(kBytes)}, 24, 0).Data(kBytes);
    test::WriteBytes(folder.File("big.gguf"), raw.bytes);
  }
  const auto file = GgufFile::Open(folder.File("big.gguf"));
  ASSERT_TRUE(file) << file.error().message;
  const GgufTensor& tensor = file->tensors()[0];
  const auto sum = [&] {
    std::uint64_t total = 0;
    for (const std::byte byte : file->Bytes(tensor)) total += std::to_integer<unsigned>(byte);
    return total;
  };
  // The kernel's counters lag by some pages per thread, and its fault-around brings others in.
  const std::int64_t pages = static_cast<std::int64_t>(kBytes) / ::sysconf(_SC_PAGESIZE) * 9 / 10;
  const std::int64_t before = ResidentFilePages();
  file->WillNeed(tensor);
  const std::uint64_t first = sum();
  const std::int64_t touched = ResidentFilePages();
  EXPECT_GE(touched - before, pages);
  file->Release(tensor);
  EXPECT_LE(ResidentFilePages() - touched, -pages);
  EXPECT_EQ(sum(), first);
  file->ReleaseAll();
  EXPECT_LE(ResidentFilePages() - touched, -pages);
}

}  // namespace
}  // namespace tilewright
