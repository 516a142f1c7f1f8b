// The shortest way to a product: D[3][48] = A[3][256] * W[48][256]^T in f32, with every check.
#include <cstdio>
#include <vector>

#include "tilewright/tilewright.h"

namespace tw = tilewright;

tw::Status Multiply(tw::Context& context, const std::vector<float>& a, const std::vector<float>& w,
                    std::vector<float>& d) {
  auto args = tw::DenseGemm(a, tw::DataType::kF32, std::as_bytes(std::span(w)), d, {3, 48, 256});
  if (!args) return tw::Fail(args.error());
  const auto desc = tw::DescOf(*args, {});
  if (!desc) return tw::Fail(desc.error());
  const auto checked = tw::Validate(*desc);
  if (!checked) return tw::Fail(checked.error());
  const auto all = tw::Feasible(*checked, context.kernels().gemm(), context.device_spec());
  const auto choice = tw::Choose(all, &context.cache());
  if (!choice) return tw::Fail(choice.error());
  const auto plan = tw::Bind(*choice, context.device());
  if (!plan) return tw::Fail(plan.error());
  auto workspace = tw::OwnedWorkspace::Make(plan->workspace(), context.device());
  if (!workspace) return tw::Fail(workspace.error());
  return tw::Run(*plan, *args, workspace->get(), context.device().default_stream());
}

int main() {
  const auto context = tw::Context::Create({});
  if (!context) return std::printf("%s\n", context.error().message.c_str()), 1;
  const std::vector<float> a(3 * 256, 0.5f), w(48 * 256, 2.0f);
  std::vector<float> d(3 * 48);
  const tw::Status done = Multiply(**context, a, w, d);
  std::printf("%s, D[2][47] = %g\n", done ? "done" : done.error().message.c_str(),
              static_cast<double>(d.back()));
  return done && d.back() == 256.0f ? 0 : 1;
}
