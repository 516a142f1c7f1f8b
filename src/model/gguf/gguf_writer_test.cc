#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>

#include "model/gguf/gguf_test_util.h"
#include "tilewright/gguf.h"

namespace tilewright {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Gives tensor i as many bytes of value i + 1 as it wants, in pieces of 7.
GgufWriter::Source Filled(const GgufWriter& writer) {
  return [&writer](std::size_t index, const GgufWriter::Sink& sink) -> Status {
    const GgufTensorSpec& spec = writer.tensors()[index];
    std::size_t left =
        BytesOf(spec.dtype, spec.shape[0] * spec.shape[1] * spec.shape[2] * spec.shape[3]);
    while (left > 0) {
      const std::vector<std::byte> piece(std::min<std::size_t>(left, 7),
                                         static_cast<std::byte>(index + 1));
      if (auto status = sink(piece); !status) return status;
      left -= piece.size();
    }
    return {};
  };
}

GgufWriter Sample() {
  GgufWriter writer;
  writer.SetString("general.architecture", "llama");
  writer.SetU32("a.u32", 7);
  writer.SetU64("a.u64", 1ull << 40);
  writer.SetI32("a.i32", -7);
  writer.SetF32("a.f32", 0.25f);
  writer.SetBool("a.bool", true);
  writer.SetStrings("a.strings", std::vector<std::string>{"x", "", "zzz"});
  writer.SetI32s("a.i32s", std::vector<std::int32_t>{1, -1});
  writer.SetF32s("a.f32s", std::vector<float>{0.5f});
  EXPECT_TRUE(writer.AddTensor(
      {.name = "norm", .dtype = DataType::kF32, .shape = {5, 1, 1, 1}, .dims = 1}));
  EXPECT_TRUE(writer.AddTensor(
      {.name = "q", .dtype = DataType::kQ6_K, .shape = {256, 3, 1, 1}, .dims = 2}));
  EXPECT_TRUE(
      writer.AddTensor({.name = "h", .dtype = DataType::kF16, .shape = {3, 2, 2, 1}, .dims = 3}));
  return writer;
}

TEST(GgufWriter, WhatIsWrittenIsReadBack) {
  const test::TemporaryFolder folder;
  const GgufWriter writer = Sample();
  const std::string path = folder.File("m.gguf");
  const auto status = writer.Write(path, Filled(writer));
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_THAT(folder.List(), ElementsAre("m.gguf"));

  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->version(), 3u);
  EXPECT_EQ(file->alignment(), 32u);
  EXPECT_EQ(file->file_bytes(), writer.file_bytes());
  EXPECT_EQ(file->String("general.architecture").value(), "llama");
  EXPECT_EQ(file->U32("a.u32").value(), 7u);
  EXPECT_EQ(file->U64("a.u64").value(), 1ull << 40);
  EXPECT_EQ(file->I32("a.i32").value(), -7);
  EXPECT_EQ(file->F32("a.f32").value(), 0.25f);
  EXPECT_TRUE(file->Bool("a.bool").value());
  EXPECT_THAT(file->Strings("a.strings").value(), ElementsAre("x", "", "zzz"));
  EXPECT_THAT(file->I32s("a.i32s").value(), ElementsAre(1, -1));
  EXPECT_THAT(file->F32s("a.f32s").value(), ElementsAre(0.5f));
  ASSERT_EQ(file->tensors().size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const GgufTensor& tensor = file->tensors()[i];
    EXPECT_EQ(tensor.name, writer.tensors()[i].name);
    EXPECT_EQ(tensor.dtype, writer.tensors()[i].dtype);
    EXPECT_EQ(tensor.shape, writer.tensors()[i].shape);
    EXPECT_EQ(tensor.dims, writer.tensors()[i].dims);
    EXPECT_EQ(tensor.offset % 32, 0u);
    for (const std::byte byte : file->Bytes(tensor))
      ASSERT_EQ(std::to_integer<std::size_t>(byte), i + 1);
  }
}

TEST(GgufWriter, TheBytesAreThoseOfTheFormat) {
  const test::TemporaryFolder folder;
  GgufWriter writer;
  writer.SetU32("k", 0x01020304);
  ASSERT_TRUE(
      writer.AddTensor({.name = "t", .dtype = DataType::kI8, .shape = {3, 1, 1, 1}, .dims = 1}));
  ASSERT_TRUE(writer.Write(folder.File("m.gguf"), Filled(writer)));
  test::RawGguf wanted;
  wanted.Text("GGUF").Put<std::uint32_t>(3).Put<std::uint64_t>(1).Put<std::uint64_t>(1);
  wanted.Put<std::uint64_t>(1).Text("k").Put<std::uint32_t>(4).Put<std::uint32_t>(0x01020304);
  wanted.Put<std::uint64_t>(1).Text("t").Put<std::uint32_t>(1).Put<std::uint64_t>(3);
  wanted.Put<std::uint32_t>(24).Put<std::uint64_t>(0).Data(0).Text("\1\1\1").Data(0);
  const std::string bytes = test::ReadBytes(folder.File("m.gguf"));
  ASSERT_EQ(bytes.size(), wanted.bytes.size());
  EXPECT_EQ(std::memcmp(bytes.data(), wanted.bytes.data(), bytes.size()), 0);
}

TEST(GgufWriter, TheSameCallsGiveTheSameBytes) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a.gguf", "b.gguf"}) {
    const GgufWriter writer = Sample();
    ASSERT_TRUE(writer.Write(folder.File(name), Filled(writer)));
  }
  EXPECT_EQ(test::ReadBytes(folder.File("a.gguf")), test::ReadBytes(folder.File("b.gguf")));
}

TEST(GgufWriter, ValuesOfAnotherFileAreCopied) {
  const test::TemporaryFolder folder;
  const test::Bytes sample = test::SampleFile();
  const auto source = GgufFile::Parse(sample, "sample");
  ASSERT_TRUE(source);
  GgufWriter writer;
  for (const GgufEntry& entry : source->entries()) writer.SetValue(entry.key, entry.value);
  ASSERT_TRUE(writer.Write(folder.File("m.gguf"), Filled(writer)));
  const auto copy = GgufFile::Open(folder.File("m.gguf"));
  ASSERT_TRUE(copy) << copy.error().message;
  ASSERT_EQ(copy->entries().size(), source->entries().size());
  for (std::size_t i = 0; i < copy->entries().size(); ++i) {
    const GgufValue& a = copy->entries()[i].value;
    const GgufValue& b = source->entries()[i].value;
    EXPECT_EQ(copy->entries()[i].key, source->entries()[i].key);
    EXPECT_EQ(a.TypeText(), b.TypeText());
    EXPECT_EQ(a.count(), b.count());
    EXPECT_TRUE(std::ranges::equal(a.bytes(), b.bytes())) << source->entries()[i].key;
  }
}

TEST(GgufWriter, AFileWithoutTensorsIsWritten) {
  const test::TemporaryFolder folder;
  GgufWriter writer;
  writer.SetU32("k", 1);
  ASSERT_TRUE(writer.Write(folder.File("m.gguf"), nullptr));
  EXPECT_TRUE(GgufFile::Open(folder.File("m.gguf")));
}

TEST(GgufWriter, BadTensorsAndKeysAreRefused) {
  GgufWriter writer;
  const auto refuse = [&writer](GgufTensorSpec spec, const char* part) {
    const Status status = writer.AddTensor(std::move(spec));
    ASSERT_FALSE(status) << part;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, HasSubstr(part));
  };
  ASSERT_TRUE(
      writer.AddTensor({.name = "t", .dtype = DataType::kF32, .shape = {1, 1, 1, 1}, .dims = 1}));
  refuse({.name = "t", .dtype = DataType::kF32, .shape = {1, 1, 1, 1}, .dims = 1}, "twice");
  refuse({.name = "", .dtype = DataType::kF32, .shape = {1, 1, 1, 1}, .dims = 1}, "0 bytes long");
  refuse({.name = std::string(64, 'x'), .dtype = DataType::kF32, .shape = {1, 1, 1, 1}, .dims = 1},
         "64 bytes long");
  refuse({.name = "k", .dtype = DataType::kQ6_K, .shape = {576, 2, 1, 1}, .dims = 2},
         "dimension 0 is 576");
  refuse({.name = "u", .dtype = DataType::kU4, .shape = {64, 2, 1, 1}, .dims = 2}, "no type u4");
  refuse({.name = "z", .dtype = DataType::kF32, .shape = {0, 1, 1, 1}, .dims = 1}, "dimension 0");
  refuse({.name = "d", .dtype = DataType::kF32, .shape = {2, 2, 1, 1}, .dims = 1},
         "dimension 1 of 1 is 2");
  refuse({.name = "d", .dtype = DataType::kF32, .shape = {2, 2, 1, 1}, .dims = 5}, "5 dimensions");
  refuse({.name = "o", .dtype = DataType::kF32, .shape = {1ll << 40, 1ll << 40, 1, 1}, .dims = 2},
         "dimension 1");

  const test::TemporaryFolder folder;
  for (const char* key : {"k", "", "general.alignment"}) {
    GgufWriter broken;
    broken.SetU32("k", 1);
    broken.SetU32(key, 2);
    const Status status = broken.Write(folder.File("m.gguf"), nullptr);
    ASSERT_FALSE(status) << key;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_THAT(folder.List(), IsEmpty());
}

TEST(GgufWriter, AFailingSourceLeavesTheOldFileAndNothingElse) {
  const test::TemporaryFolder folder;
  const std::string path = folder.File("m.gguf");
  test::WriteBytes(path, std::as_bytes(std::span("old", 3)));
  const GgufWriter writer = Sample();
  const GgufWriter::Source sources[] = {
      [](std::size_t, const GgufWriter::Sink&) -> Status {
        return Fail(ErrorCode::kCancelled, "stopped");
      },
      [](std::size_t, const GgufWriter::Sink& sink) { return sink(std::vector<std::byte>(3)); },
      [](std::size_t, const GgufWriter::Sink& sink) { return sink(std::vector<std::byte>(21)); },
  };
  const char* messages[] = {"stopped", "given 3 bytes; its shape takes 20",
                            "given 21 bytes; its shape takes 20"};
  for (int i = 0; i < 3; ++i) {
    const Status status = writer.Write(path, sources[i]);
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr(messages[i]));
    EXPECT_THAT(folder.List(), ElementsAre("m.gguf"));
    EXPECT_EQ(test::ReadBytes(path), "old");
  }
}

TEST(GgufWriter, PlacesThatCannotBeWrittenAreNamed) {
  const test::TemporaryFolder folder;
  const GgufWriter writer = Sample();
  const std::string absent = folder.File("no/such/m.gguf");
  Status status = writer.Write(absent, Filled(writer));
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr(absent));

  std::filesystem::create_directory(folder.File("taken.gguf"));
  status = writer.Write(folder.File("taken.gguf"), Filled(writer));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_THAT(folder.List(), ElementsAre("taken.gguf"));
}

// A limit on file sizes stands in for a full disk: the write fails in the middle all the same.
TEST(GgufWriter, AFullDiskIsAnErrorAndLeavesNothing) {
  const test::TemporaryFolder folder;
  const GgufWriter writer = Sample();
  const auto old_action = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  for (const rlim_t limit :
       {rlim_t{0}, rlim_t{100}, static_cast<rlim_t>(writer.file_bytes() - 1)}) {
    const rlimit small{limit, old_limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const Status status = writer.Write(folder.File("m.gguf"), Filled(writer));
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
    ASSERT_FALSE(status) << limit;
    EXPECT_EQ(status.error().code, ErrorCode::kIo);
    EXPECT_THAT(status.error().message, AllOf(HasSubstr("cannot write "), HasSubstr("m.gguf: ")));
    EXPECT_THAT(folder.List(), IsEmpty());
  }
  std::signal(SIGXFSZ, old_action);
}

TEST(GgufWriter, AFileThatCannotFitIsRefusedBeforeItIsWritten) {
  const test::TemporaryFolder folder;
  GgufWriter writer;
  ASSERT_TRUE(writer.AddTensor(
      {.name = "t", .dtype = DataType::kI8, .shape = {1ll << 55, 1, 1, 1}, .dims = 1}));
  bool asked = false;
  const Status status =
      writer.Write(folder.File("m.gguf"), [&](std::size_t, const GgufWriter::Sink&) -> Status {
        asked = true;
        return Fail(ErrorCode::kInternal, "must not be asked");
      });
  ASSERT_FALSE(status);
  EXPECT_FALSE(asked);
  EXPECT_THAT(status.error().message, HasSubstr("free"));
  EXPECT_THAT(folder.List(), IsEmpty());
}

TEST(GgufWriter, WithoutAFileTheTensorsAreMadeWhenTheyAreFetched) {
  const GgufWriter writer = Sample();
  std::vector<int> calls(writer.tensors().size());
  const auto source = [&](std::size_t index, const GgufWriter::Sink& sink) {
    ++calls[index];
    return Filled(writer)(index, sink);
  };
  const Result<GgufFile> file = writer.Generate("made", source);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->path(), "made");
  EXPECT_EQ(file->U32("a.u32"), 7u);
  EXPECT_EQ(file->file_bytes(), writer.file_bytes());
  EXPECT_TRUE(file->CheckUnchanged());
  EXPECT_THAT(calls, testing::Each(0)) << "nobody asked";
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const GgufTensor& tensor = file->tensors()[i];
    const auto value = static_cast<std::byte>(i + 1);
    ASSERT_TRUE(file->Fetch(tensor));
    EXPECT_THAT(file->Bytes(tensor), testing::Each(value));
    ASSERT_TRUE(file->Fetch(tensor));
    file->Release(tensor);
    EXPECT_THAT(file->Bytes(tensor), testing::Each(value)) << "fetched twice, released once";
    EXPECT_EQ(calls[i], 1);
    file->Release(tensor);
    file->Release(tensor);  // once too often
    ASSERT_TRUE(file->Fetch(tensor));
    EXPECT_THAT(file->Bytes(tensor), testing::Each(value));
    EXPECT_EQ(calls[i], 2);
  }
}

TEST(GgufWriter, ASourceOfTheWrongSizeFailsTheFetch) {
  const GgufWriter writer = Sample();
  const std::vector<std::byte> bytes(19);  // tensor 0 takes 20
  const auto made = [&](int pieces) {
    return writer.Generate("made", [&bytes, pieces](std::size_t, const GgufWriter::Sink& sink) {
      for (int i = 0; i < pieces; ++i) {
        if (Status s = sink(bytes); !s) return s;
      }
      return Status();
    });
  };
  for (const int pieces : {0, 1, 2}) {
    const Result<GgufFile> file = made(pieces);
    ASSERT_TRUE(file);
    const Status fetched = file->Fetch(file->tensors()[0]);
    ASSERT_FALSE(fetched) << pieces;
    EXPECT_THAT(fetched.error().message, HasSubstr("tensor norm"));
    EXPECT_THAT(fetched.error().message, HasSubstr("20"));
  }
  const Result<GgufFile> failing = writer.Generate("made", [](std::size_t, const auto&) -> Status {
    return Fail(ErrorCode::kIo, "no source today");
  });
  ASSERT_TRUE(failing);
  EXPECT_EQ(failing->Fetch(failing->tensors()[1]).error().message, "no source today");
}

}  // namespace
}  // namespace tilewright
