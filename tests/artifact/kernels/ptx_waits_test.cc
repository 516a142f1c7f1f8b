// The check of waits that compile_catalog_test.cc makes of every kernel, on kernels made up for it.
#include "ptx_waits.h"

#include <gtest/gtest.h>

namespace tilewright::test {
namespace {

std::string TroubleOf(std::string_view body, ReadsAhead reads = ReadsAhead::kNever) {
  return PtxWaitTrouble(
      ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<3>;\n" + std::string(body) + "\n}\n",
      reads);
}

constexpr std::string_view kWait = "griddepcontrol.wait;\n";

std::string Then(std::string_view first, std::string_view second) {
  return std::string(first) + std::string(second);
}

TEST(PtxWaits, AWaitInFrontOfEverythingIsRight) {
  EXPECT_EQ(TroubleOf(Then(kWait, "ld.global.u32 %r1, [%rd1];\nst.global.u32 [%rd1], %r1;\nret;")),
            "");
  EXPECT_EQ(TroubleOf(Then("ld.param.u64 %rd1, [p];\nst.shared.u32 [%r1], %r2;\n"
                           "prefetch.global.L2 [%rd1]; // early\n"
                           "cp.async.bulk.prefetch.L2.global [%rd1], %r1;\n",
                           Then(kWait, "ret;"))),
            "");
}

TEST(PtxWaits, WhatComesTooEarlyIsNamed) {
  EXPECT_EQ(TroubleOf("ret;"), "ret");
  EXPECT_EQ(TroubleOf(Then("st.global.u32 [%rd1], %r1;\n", Then(kWait, "ret;"))),
            "st.global.u32 [%rd1], %r1");
  EXPECT_EQ(TroubleOf(Then("st.u32 [%rd1], %r1;\n", Then(kWait, "ret;"))), "st.u32 [%rd1], %r1");
  EXPECT_EQ(TroubleOf(Then("red.global.add.u32 [%rd1], 1;\n", Then(kWait, "ret;"))),
            "red.global.add.u32 [%rd1], 1");
  EXPECT_EQ(TroubleOf(Then("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, "
                           "{%r1, %r2}], [%r3];\n",
                           Then(kWait, "ret;"))),
            "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r1, %r2}], [%r3]");
  EXPECT_EQ(TroubleOf(Then(kWait, "ld.global.nc.u32 %r1, [%rd1];\nret;")),
            "ld.global.nc.u32 %r1, [%rd1]");
}

TEST(PtxWaits, ReadsAreForConstantsOnly) {
  const std::string copies = Then("cp.async.cg.shared.global [%r1], [%rd1], 16;\n", kWait) + "ret;";
  EXPECT_EQ(TroubleOf(copies, ReadsAhead::kConstants), "");
  EXPECT_EQ(TroubleOf(copies), "cp.async.cg.shared.global [%r1], [%rd1], 16");
}

TEST(PtxWaits, PlacesToPrefetchAreReadPastL1) {
  const std::string peek = Then("ld.relaxed.gpu.global.s32 %r1, [%rd1];\n", kWait) + "ret;";
  EXPECT_EQ(TroubleOf(peek, ReadsAhead::kPlacesToPrefetch), "");
  EXPECT_EQ(TroubleOf(peek), "ld.relaxed.gpu.global.s32 %r1, [%rd1]");
  const std::string kept = Then("ld.global.u32 %r1, [%rd1];\n", kWait) + "ret;";
  EXPECT_EQ(TroubleOf(kept, ReadsAhead::kPlacesToPrefetch), "ld.global.u32 %r1, [%rd1]");
}

TEST(PtxWaits, EveryPathHasToWait) {
  EXPECT_EQ(TroubleOf(Then("@%p1 bra $L_end;\n", Then(kWait, "$L_end:\nret;"))), "ret");
  EXPECT_EQ(TroubleOf(Then("@%p1 ret;\n", Then(kWait, "ret;"))), "ret");
  EXPECT_EQ(TroubleOf("@%p1 griddepcontrol.wait;\nret;"), "ret") << "not by a predicate";
  // Both ways wait, and a loop in front of the wait ends.
  EXPECT_EQ(TroubleOf("$L_top:\n@%p2 bra $L_top;\n@%p1 bra $L_else;\ngriddepcontrol.wait;\n"
                      "bra.uni $L_end;\n$L_else:\ngriddepcontrol.wait;\n$L_end:\nret;"),
            "");
}

TEST(PtxWaits, ABranchToNowhereIsNotTakenForRight) {
  EXPECT_EQ(TroubleOf(Then("bra $L_gone;\n", Then(kWait, "ret;"))), "bra $L_gone");
}

}  // namespace
}  // namespace tilewright::test
