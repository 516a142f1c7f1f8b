#include "device/cuda/rates.h"

#include <gtest/gtest.h>

#include <string>

namespace tilewright::cuda {
namespace {

/// Attributes as the driver reports them, and what the data sheet of the board says.
struct Board {
  const char* name;
  int compute_capability, sm_count;
  BoardClocks clocks;
  double read_gb_s, f32_gflop_s, bf16_gflop_s, i8_gop_s;
};
constexpr Board kBoards[] = {
    {"NVIDIA A100-SXM4-40GB", 80, 108, {1'410'000, 1'215'000, 5120}, 1555, 19'500, 312e3, 624e3},
    {"NVIDIA A100-SXM4-80GB", 80, 108, {1'410'000, 1'593'000, 5120}, 2039, 19'500, 312e3, 624e3},
    {"NVIDIA GeForce RTX 4090", 89, 128, {2'520'000, 10'501'000, 384}, 1008, 82'600, 165e3, 660e3},
    {"NVIDIA L40S", 89, 142, {2'520'000, 9'001'000, 384}, 864, 91'600, 362e3, 733e3},
    {"NVIDIA H100 80GB HBM3", 90, 132, {1'980'000, 2'619'000, 5120}, 3350, 67e3, 989e3, 1979e3},
    {"NVIDIA H200", 90, 132, {1'980'000, 3'201'000, 6144}, 4800, 67e3, 989e3, 1979e3},
    {"NVIDIA B200", 100, 148, {1'965'000, 3'996'000, 8192}, 8000, 75e3, 2250e3, 4500e3},
    {"NVIDIA GeForce RTX 5090",
     120,
     170,
     {2'407'000, 14'001'000, 512},
     1792,
     104.8e3,
     209.5e3,
     838e3},
};

DeviceSpec SpecOf(const Board& board) {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCuda;
  spec.name = board.name;
  spec.compute_capability = board.compute_capability;
  spec.sm_count = board.sm_count;
  return spec;
}

TEST(BoardRates, AgreeWithDataSheetsWithinATenth) {
  for (const Board& board : kBoards) {
    const DeviceRates rates = BoardRates(SpecOf(board), board.clocks);
    EXPECT_NEAR(rates.read_gb_s / board.read_gb_s, 1, 0.1) << board.name;
    EXPECT_NEAR(rates.f32_gflop_s / board.f32_gflop_s, 1, 0.1) << board.name;
    EXPECT_NEAR(rates.bf16_gflop_s / board.bf16_gflop_s, 1, 0.1) << board.name;
    EXPECT_NEAR(rates.i8_gop_s / board.i8_gop_s, 1, 0.1) << board.name;
    EXPECT_EQ(rates.amx_bf16_gflop_s, 0) << board.name;
    EXPECT_EQ(rates.amx_i8_gop_s, 0) << board.name;
  }
}

TEST(BoardRates, ANewerMemberOfAGenerationHasTheRatesOfTheNearestOlderOne) {
  Board board = kBoards[2];
  const DeviceRates ada = BoardRates(SpecOf(board), board.clocks);
  board.compute_capability = 87;  // between 86 and 89, whose rates are equal
  EXPECT_EQ(BoardRates(SpecOf(board), board.clocks), ada);
  board.compute_capability = 121;
  EXPECT_GT(BoardRates(SpecOf(board), board.clocks).bf16_gflop_s, 0);
}

TEST(BoardRates, WhatNothingIsKnownOfIsZero) {
  Board board = kBoards[4];
  board.compute_capability = 75;  // no bf16, and older than the table
  const DeviceRates old = BoardRates(SpecOf(board), board.clocks);
  EXPECT_GT(old.read_gb_s, 3000);
  EXPECT_EQ(old.f32_gflop_s, 0);
  EXPECT_EQ(old.bf16_gflop_s, 0);
  EXPECT_EQ(old.i8_gop_s, 0);
  const DeviceRates dark = BoardRates(SpecOf(kBoards[4]), {});
  ForEachRate(dark, [](const char* name, double rate) { EXPECT_EQ(rate, 0) << name; });
}

}  // namespace
}  // namespace tilewright::cuda
