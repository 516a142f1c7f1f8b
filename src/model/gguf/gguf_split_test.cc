// Models that were split into several files count as one, whichever file is opened.
#include <gmock/gmock.h>

#include "model/gguf/gguf_test_util.h"

namespace tilewright {
namespace {

using test::RawGguf;
using ::testing::HasSubstr;

/// File `number` (from 0) of `count`, with one tensor of 32 bytes that all hold the number.
RawGguf PartOf(std::uint16_t number, std::uint16_t count, const std::string& tensor,
               std::int32_t tensors = 3) {
  RawGguf raw;
  raw.Header(1, 4).Key("split.no", GgufType::kU16).Put(number);
  raw.Key("split.count", GgufType::kU16).Put(count);
  raw.Key("split.tensors.count", GgufType::kI32).Put(tensors);
  raw.U32("of.this.file", number);
  raw.Tensor(tensor, {8}, 0, 0);
  raw.Data(0);
  for (int i = 0; i < 32; ++i) raw.Put(static_cast<std::uint8_t>(number));
  return raw;
}

class GgufSplit : public testing::Test {
 protected:
  static std::string Name(int number, int count = 3) {
    return "model-0000" + std::to_string(number) + "-of-0000" + std::to_string(count) + ".gguf";
  }
  void Write(int number, const RawGguf& raw, int count = 3) {
    test::WriteBytes(folder_.File(Name(number, count)), raw.bytes);
  }
  void WriteAll() {
    Write(1, PartOf(0, 3, "c"));
    Write(2, PartOf(1, 3, "a"));
    Write(3, PartOf(2, 3, "b"));
  }
  void ExpectError(int number, ErrorCode code, const std::vector<std::string>& words) {
    const auto file = GgufFile::Open(folder_.File(Name(number)));
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, code) << file.error().message;
    for (const std::string& word : words) EXPECT_THAT(file.error().message, HasSubstr(word));
  }

  test::TemporaryFolder folder_;
};

TEST_F(GgufSplit, any_of_the_files_opens_all_and_tensors_come_from_where_they_are) {
  WriteAll();
  for (int opened = 1; opened <= 3; ++opened) {
    const auto file = GgufFile::Open(folder_.File(Name(opened)));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->path(), folder_.File(Name(1)));
    EXPECT_EQ(file->U32("of.this.file").value(), 0u) << "the metadata is the first file's";
    ASSERT_EQ(file->tensors().size(), 3u);
    const std::pair<const char*, int> places[] = {{"c", 0}, {"a", 1}, {"b", 2}};
    for (const auto& [name, number] : places) {
      const GgufTensor* tensor = file->FindTensor(name);
      ASSERT_NE(tensor, nullptr) << name;
      EXPECT_EQ(std::to_integer<int>(file->Bytes(*tensor).back()), number);
      EXPECT_EQ(static_cast<const std::byte*>(file->View(name)->data), file->Bytes(*tensor).data());
    }
    EXPECT_EQ(file->tensor_bytes(), 96u);
    EXPECT_EQ(file->file_bytes(), 3 * PartOf(0, 3, "c").bytes.size());
    EXPECT_GT(test::ReadEverything(*file), 0u);
    file->ReleaseAll();
    EXPECT_TRUE(file->CheckUnchanged());
  }
}

TEST_F(GgufSplit, a_later_file_that_changes_is_noticed) {
  WriteAll();
  const auto file = GgufFile::Open(folder_.File(Name(1)));
  ASSERT_TRUE(file);
  std::ofstream(folder_.File(Name(3)), std::ios::app) << "more";
  const Status changed = file->CheckUnchanged();
  ASSERT_FALSE(changed);
  EXPECT_THAT(changed.error().message, HasSubstr(Name(3)));
}

TEST_F(GgufSplit, a_file_that_is_missing_or_damaged_is_named) {
  WriteAll();
  std::filesystem::remove(folder_.File(Name(2)));
  ExpectError(1, ErrorCode::kNotFound, {Name(2), "file 2 of 3"});
  RawGguf cut = PartOf(1, 3, "a");
  cut.bytes.resize(cut.bytes.size() - 1);
  Write(2, cut);
  ExpectError(3, ErrorCode::kCorrupt, {Name(2), "\"a\""});
}

TEST_F(GgufSplit, files_that_do_not_belong_together_are_refused) {
  WriteAll();
  Write(2, PartOf(2, 3, "a"));
  ExpectError(1, ErrorCode::kCorrupt, {Name(2), "split.no = 2", "expected 1", Name(1)});
  Write(2, PartOf(1, 4, "a"));
  ExpectError(1, ErrorCode::kCorrupt, {Name(2), "split.count = 4", "3 after"});
  Write(2, PartOf(1, 3, "c"));
  ExpectError(1, ErrorCode::kCorrupt, {Name(2), "\"c\"", Name(1)});
  Write(2, PartOf(1, 3, "a"));
  Write(1, PartOf(0, 3, "c", 4));
  ExpectError(1, ErrorCode::kCorrupt, {Name(1), "split.tensors.count = 4", "3 files have 3"});
}

TEST_F(GgufSplit, a_name_that_does_not_lead_to_the_others_says_which_one_would) {
  const auto refused = [](const Result<GgufFile>& file, std::vector<std::string> words) {
    ASSERT_FALSE(file);
    for (const std::string& word : words) EXPECT_THAT(file.error().message, HasSubstr(word));
  };
  test::WriteBytes(folder_.File("a.gguf"), PartOf(1, 3, "a").bytes);
  refused(GgufFile::Open(folder_.File("a.gguf")),
          {"file 2 of 3", "call it NAME-00002-of-00003.gguf"});
  Write(3, PartOf(1, 3, "a"));
  refused(GgufFile::Open(folder_.File(Name(3))), {"call it NAME-00002-of-00003.gguf"});
  test::WriteBytes(folder_.File(Name(2, 5)), test::SampleFile());
  refused(GgufFile::Open(folder_.File(Name(2, 5))), {Name(2, 5), "file 2 of 5", "split.count = 0"});
  refused(PartOf(1, 3, "a").Parse(), {"test.gguf", "part 2", "3 files"});
}

TEST_F(GgufSplit, whole_models_may_have_any_name_that_is_not_one_of_several) {
  RawGguf single;
  single.Header(0, 1).Key("split.count", GgufType::kU16).Put<std::uint16_t>(1);
  EXPECT_TRUE(single.Parse());
  for (const char* name : {"model-00001-of-00001.gguf", "model-1-of-2.gguf", "a.gguf"}) {
    test::WriteBytes(folder_.File(name), test::SampleFile());
    EXPECT_TRUE(GgufFile::Open(folder_.File(name))) << name;
  }
}

}  // namespace
}  // namespace tilewright
