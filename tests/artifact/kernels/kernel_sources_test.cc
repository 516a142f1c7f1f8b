// The sources of the kernels as they are embedded: self-contained, and all in the keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <set>
#include <string>

#include "tilewright/artifact_key.h"
#include "tilewright/tilewright.h"

namespace tilewright {
namespace {

/// Names in the #include lines of a text, with their quotes or brackets.
std::vector<std::string> Includes(std::string_view text) {
  static const std::regex pattern(R"((^|\n)[ \t]*#[ \t]*include[ \t]*([<"][^>"\n]*[>"]))");
  std::vector<std::string> names;
  const std::string copy(text);
  for (std::sregex_iterator it(copy.begin(), copy.end(), pattern), end; it != end; ++it) {
    names.push_back((*it)[2]);
  }
  return names;
}

std::map<std::string, std::string> Embedded() {
  std::map<std::string, std::string> files;
  for (const SourceFile& file : EmbeddedSources()) files.emplace(file.name, file.text);
  return files;
}

TEST(KernelSources, IncludeOnlyWhatIsEmbedded) {
  const auto files = Embedded();
  EXPECT_FALSE(files.empty());
  for (const auto& [name, text] : files) {
    for (const std::string& include : Includes(text)) {
      EXPECT_EQ(include.front(), '"') << name << " includes " << include;
      const std::string target = include.substr(1, include.size() - 2);
      EXPECT_TRUE(target == "spec.cuh" || files.count(target) == 1)
          << name << " includes " << include << ", which is not embedded";
    }
  }
}

TEST(KernelSources, EveryReachedFileIsInTheKeyAndNoOther) {
  const KernelFamilies families = AllKernelFamilies();
  const auto sources = KernelSources::Make(families);
  ASSERT_TRUE(sources) << sources.error().message;
  const auto files = Embedded();
  std::set<std::string> used;
  for (const KernelFamily& family : families.all()) {
    SCOPED_TRACE(std::string(family.name.view()));
    std::set<std::string> reached{std::string(family.source)};
    for (std::vector<std::string> open{std::string(family.source)}; !open.empty();) {
      const std::string at = open.back();
      open.pop_back();
      ASSERT_EQ(files.count(at), 1u) << at;
      for (const std::string& include : Includes(files.at(at))) {
        const std::string target = include.substr(1, include.size() - 2);
        if (target != "spec.cuh" && reached.insert(target).second) open.push_back(target);
      }
    }
    // spec.cuh itself includes this one.
    reached.insert("device/cuda/kernels/types.cuh");
    const KernelSources::Unit* unit = sources->Find(family.name);
    ASSERT_NE(unit, nullptr);
    std::set<std::string> manifest;
    for (const KernelSources::File& file : unit->files) manifest.emplace(file.file.name);
    EXPECT_EQ(manifest, reached);
    used.insert(reached.begin(), reached.end());
  }
  for (const auto& [name, text] : files)
    EXPECT_EQ(used.count(name), 1u) << name << " is in no kernel";
}

}  // namespace
}  // namespace tilewright
