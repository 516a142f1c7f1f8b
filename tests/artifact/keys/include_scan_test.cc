#include "artifact/include_scan.h"

#include <gtest/gtest.h>

#include "key_inputs.h"

namespace tilewright {
namespace {

using Names = std::vector<std::string>;

Names Scan(std::string_view text) {
  const auto names = ScanIncludes(text);
  return names ? *names : Names{"error: " + names.error().message};
}

TEST(IncludeScan, FindsDirectivesInEverySpelling) {
  EXPECT_EQ(Scan("#include \"a.h\"\n#include <b.h>\n"), (Names{"a.h", "b.h"}));
  EXPECT_EQ(Scan("  #  include\t\"a.h\" // why\n"), Names{"a.h"});
  EXPECT_EQ(Scan("/* x */ # /* y */ include /* z */ \"a.h\"\n"), Names{"a.h"});
  EXPECT_EQ(Scan("%: include \"a.h\"\n"), Names{"a.h"});
  EXPECT_EQ(Scan("#include \"a.h\""), Names{"a.h"});
  EXPECT_EQ(Scan("#include \"a.h\"\r\n#include \"b.h\"\r\n"), (Names{"a.h", "b.h"}));
  EXPECT_EQ(Scan("#inc\\\nlude \"a\\\n.h\"\n"), Names{"a.h"});
  EXPECT_EQ(Scan("#inc\\\r\nlude \"a.h\"\n"), Names{"a.h"});
  EXPECT_EQ(Scan("/* one\ntwo */#include \"a.h\"\n"), Names{"a.h"});
}

TEST(IncludeScan, AConditionDoesNotHideAFile) {
  EXPECT_EQ(Scan("#if 0\n#include \"a.h\"\n#endif\n"), Names{"a.h"});
}

TEST(IncludeScan, WhatIsNoDirectiveIsNone) {
  EXPECT_EQ(Scan("// #include \"a.h\"\n"), Names{});
  EXPECT_EQ(Scan("// x \\\n#include \"a.h\"\n"), Names{});
  EXPECT_EQ(Scan("/*\n#include \"a.h\"\n*/"), Names{});
  EXPECT_EQ(Scan("x #include \"a.h\"\n"), Names{});
  EXPECT_EQ(Scan("const char* s = R\"x(\n#include \"a.h\"\n)\" )x\";\n"), Names{});
  EXPECT_EQ(Scan("#define include \"a.h\"\n#pragma once\n#\n"), Names{});
  EXPECT_EQ(Scan("includes"), Names{});
  EXPECT_EQ(Scan(""), Names{});
}

TEST(IncludeScan, LiteralsDoNotSwallowDirectives) {
  const std::string tail = "\n#include \"a.h\"\n";
  for (const char* head : {"const char* s = \"/*\";", "char c = '\"';", "char c = '\\'';",
                           "int n = 1'000'000; // it's", "int n = 0x1'f; /* ' */", "// don't /*",
                           "const char* s = \"\\\\\";", "const char* s = \"\\\"/*\";", "R\"(/*)\"",
                           "auto s = u8R\"a()\" /*)a\";", "#error don't", "unterminated \"/*",
                           "int R = 1; \"/*\"", "fooR\"(\"", "L'\"'"}) {
    EXPECT_EQ(Scan(head + tail), Names{"a.h"}) << head;
  }
}

TEST(IncludeScan, ABackslashBeforeBlanksSplicesNothing) {
  // As NVRTC has it: the comment ends with its line.
  for (const char* blanks : {" ", "\t", " \r", "\f", "\v"}) {
    EXPECT_EQ(Scan(std::string("// C:\\") + blanks + "\n#include \"a.h\"\n"), Names{"a.h"});
  }
  EXPECT_EQ(Scan("// C:\\\r\n#include \"a.h\"\n"), Names{});
}

TEST(IncludeScan, OnlyVirtualNamesMayBeAskedFor) {
  // NVRTC answers of real files where the path is absolute.
  for (const char* text :
       {"#if __has_include(\"a.h\")\n", "#if __has_include ( <b/a.h> )\n", "#ifdef __has_include\n",
        "#if defined(__has_include)\n", "#ifndef __has_embed\n",
        "#if defined __has_include && __has_include(\"a.h\")\n", "int has_include;"}) {
    EXPECT_EQ(Scan(text), Names{}) << text;
  }
  for (const char* text :
       {"#if __has_include(\"/etc/passwd\")\n", "#if __has_include(</etc/passwd>)\n",
        "#if __has_include(\"../x\")\n", "#if __has_include(NAME)\n", "#define H __has_include\n",
        "#if __has_include\\\n(\"/x\")\n", "#if __has_include(\"a\n", "__has_include",
        "#if __has_include_next(\"a.h\")\n", "#if __has_embed(\"a.h\")\n",
        "#if defined(X) && __has_include(\"/x\")\n"}) {
    const auto names = ScanIncludes(text);
    ASSERT_FALSE(names) << text;
    EXPECT_EQ(names.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(IncludeScan, WhatCannotBeFollowedIsAnError) {
  for (const char* text :
       {"#include HEADER\n", "#include \"a.h\n\"\n", "#include\n", "#include", "#include <a.h\n>",
        "#include_next \"a.h\"\n", "#import \"a.h\"\n", "#embed \"a.bin\"\n",
        "int t = __TIME__[0];\n", "#define WHEN __DATE__\n", "f(__TIMESTAMP__)"}) {
    const auto names = ScanIncludes(text);
    ASSERT_FALSE(names) << text;
    EXPECT_EQ(names.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(IncludeScan, EveryPrefixOfATextIsReadToItsEnd) {
  const std::string text =
      "#include \"a.h\"\n/* x */ R\"q()q\" 'x' 1'0 \"s\\\n\" # include <b>\n%:include\\\n \"c\"";
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const auto names = ScanIncludes(std::string_view(text).substr(0, n));
    EXPECT_TRUE(!names || names->size() <= 3u) << n;
  }
}

TEST(VirtualNames, AreRelativeAndPlain) {
  for (const char* name : {"a", "a/b.cuh", "..a/b", "a..b", "a/...", "-x"}) {
    EXPECT_TRUE(IsVirtualName(name)) << name;
  }
  for (const char* name : {"", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\\b", "a b",
                           "a\nb", "a\"b", "a<b", "\xc3\xa9"}) {
    EXPECT_FALSE(IsVirtualName(name)) << name;
  }
  EXPECT_TRUE(IsVirtualName(std::string(255, 'a')));
  EXPECT_FALSE(IsVirtualName(std::string(256, 'a')));
}

TEST(KernelSources, HoldTheUnitAndEverythingItReachesByName) {
  const test::InputFamily family(test::FixedInputs());
  KernelFamilies families;
  ASSERT_TRUE(families.Add(family.get()));
  const auto sources = KernelSources::Make(families);
  ASSERT_TRUE(sources) << sources.error().message;
  const KernelSources::Unit* unit = sources->Find("keys");
  ASSERT_NE(unit, nullptr);
  Names names;
  for (const auto& file : unit->files) names.emplace_back(file.file.name);
  EXPECT_EQ(names, (Names{"keys/unit.cu", "device/cuda/kernels/types.cuh", "keys/deep.cuh",
                          "keys/inner.cuh"}));
  EXPECT_EQ(sources->Find("other"), nullptr);
}

TEST(KernelSources, HeadersMayIncludeEachOther) {
  test::KeyInputs inputs = test::FixedInputs();
  inputs.files["keys/deep.cuh"] += "#include \"keys/inner.cuh\"\n#include \"keys/deep.cuh\"\n";
  EXPECT_TRUE(test::RequestOf(inputs));
}

TEST(KernelSources, AnIncludeThatIsNowhereIsNamedWithItsIncluder) {
  test::KeyInputs inputs = test::FixedInputs();
  inputs.files["keys/deep.cuh"] += "#include <cuda_bf16.h>\n";
  const auto request = test::RequestOf(inputs);
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  for (const char* word : {"keys", "cuda_bf16.h", "keys/deep.cuh"}) {
    EXPECT_NE(request.error().message.find(word), std::string::npos) << request.error().message;
  }
}

TEST(KernelSources, AMissingUnitIsNamed) {
  test::KeyInputs inputs = test::FixedInputs();
  inputs.source = "keys/absent.cu";
  const auto request = test::RequestOf(inputs);
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(request.error().message.find("keys/absent.cu"), std::string::npos);
}

TEST(KernelSources, AFileNamedAsTheRenderedHeaderIsNotUsed) {
  test::KeyInputs inputs = test::FixedInputs();
  const auto key = test::RequestOf(inputs)->key;
  inputs.files["spec.cuh"] = "#error not this one\n";
  EXPECT_EQ(test::RequestOf(inputs)->key, key);
  inputs.source = "spec.cuh";
  EXPECT_EQ(test::RequestOf(inputs).error().code, ErrorCode::kInvalidArgument);
}

TEST(KernelSources, ARealPathIsRefused) {
  for (const std::string name : {"/usr/include/x.cuh", "../x.cuh", "keys/./x.cuh"}) {
    test::KeyInputs inputs = test::FixedInputs();
    inputs.files["keys/unit.cu"] += "#include \"" + name + "\"\n";
    inputs.files[name] = "\n";
    const auto request = test::RequestOf(inputs);
    ASSERT_FALSE(request) << name;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(request.error().message.find(name), std::string::npos);
  }
}

}  // namespace
}  // namespace tilewright
