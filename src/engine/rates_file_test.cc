#include "engine/rates_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace tilewright {
namespace {

constexpr const char* kClass = "cpu/some processor/avx512+vnni/2 threads/l2 1024K/llc 32768K";

DeviceRates SomeRates() {
  return {.read_gb_s = 21.5, .f32_gflop_s = 118, .bf16_gflop_s = 82.25, .i8_gop_s = 470.125};
}

class RatesFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "rates.XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return RatesPath(folder_, kClass).value(); }
  std::string Text() const {
    std::stringstream text;
    text << std::ifstream(Path()).rdbuf();
    return text.str();
  }
  void Write(const std::string& text) const { std::ofstream(Path()) << text; }

  std::string folder_;
};

TEST_F(RatesFile, WhatIsSavedIsLoadedBitForBitAndOnlyForItsClass) {
  EXPECT_FALSE(LoadRates(folder_, kClass));
  ASSERT_TRUE(SaveRates(folder_, kClass, SomeRates()));
  EXPECT_EQ(LoadRates(folder_, kClass), SomeRates());
  EXPECT_FALSE(LoadRates(folder_, "cpu/another"));
  DeviceRates others = SomeRates();
  others.read_gb_s = 1.0 / 3;
  ASSERT_TRUE(SaveRates(folder_, "cpu/another", others));
  EXPECT_EQ(LoadRates(folder_, kClass), SomeRates());
  EXPECT_EQ(LoadRates(folder_, "cpu/another"), others);
}

TEST_F(RatesFile, SavingAgainReplaces) {
  ASSERT_TRUE(SaveRates(folder_, kClass, SomeRates()));
  DeviceRates newer = SomeRates();
  newer.amx_i8_gop_s = 3000;
  ASSERT_TRUE(SaveRates(folder_, kClass, newer));
  EXPECT_EQ(LoadRates(folder_, kClass), newer);
}

TEST_F(RatesFile, ADamagedFileIsNoCalibration) {
  ASSERT_TRUE(SaveRates(folder_, kClass, SomeRates()));
  const std::string good = Text();
  for (std::size_t at = 0; at + 1 < good.size(); at += 3) {  // the last byte is the line's end
    Write(good.substr(0, at));
    EXPECT_FALSE(LoadRates(folder_, kClass)) << "cut at " << at;
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    Write(changed);
    EXPECT_FALSE(LoadRates(folder_, kClass)) << "changed at " << at;
  }
  Write(good);
  EXPECT_TRUE(LoadRates(folder_, kClass));
}

TEST_F(RatesFile, AFileOfAnotherClassUnderThisNameIsNotBelieved) {
  ASSERT_TRUE(SaveRates(folder_, "cpu/another", SomeRates()));
  ASSERT_EQ(std::rename(RatesPath(folder_, "cpu/another")->c_str(), Path().c_str()), 0);
  EXPECT_FALSE(LoadRates(folder_, kClass));
}

TEST_F(RatesFile, RatesThatNoTimeCanBePredictedFromAreNotSaved) {
  const auto refused = [&](auto change) {
    DeviceRates rates = SomeRates();
    change(rates);
    return !SaveRates(folder_, kClass, rates).has_value();
  };
  EXPECT_TRUE(refused([](DeviceRates& r) { r.read_gb_s = 0; }));
  EXPECT_TRUE(refused([](DeviceRates& r) { r.f32_gflop_s = -1; }));
  EXPECT_TRUE(refused([](DeviceRates& r) { r.i8_gop_s = std::nan(""); }));
  EXPECT_TRUE(refused(
      [](DeviceRates& r) { r.amx_bf16_gflop_s = std::numeric_limits<double>::infinity(); }));
  EXPECT_FALSE(refused([](DeviceRates& r) { r.bf16_gflop_s = 0; }));
}

TEST_F(RatesFile, AFolderThatCannotBeMadeIsAnErrorThatNamesIt) {
  const std::string file = folder_ + "/file";
  std::ofstream(file) << "x";
  const Status status = SaveRates(file, kClass, SomeRates());
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find(file), std::string::npos) << status.error().message;
}

}  // namespace
}  // namespace tilewright
