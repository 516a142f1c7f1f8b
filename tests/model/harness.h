#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "goldens.h"
#include "tilewright/generate.h"
#include "tilewright/tilewright.h"

namespace tilewright::test {

/// A model with all that is needed to run it.
struct Runner {
  std::unique_ptr<Context> context;
  std::unique_ptr<DeviceDispatch> dispatch;
  std::unique_ptr<KernelDispatch> reference;
  std::unique_ptr<Model> model;
  std::unique_ptr<Session> session;

  struct Options {
    Precision activations = Precision::kAuto;
    DataType kv = DataType::kF16;
    bool fuse = true;
    bool float64 = false;  ///< the reference dispatch on f64 tensors
    int context = 2048;
  };

  static std::unique_ptr<Runner> Make(const std::string& path, const Options& options) {
    auto runner = std::make_unique<Runner>();
    auto check = [](auto& result) {
      if (!result) ADD_FAILURE() << result.error().message;
      return static_cast<bool>(result);
    };
    auto context = Context::Create({});
    if (!check(context)) return nullptr;
    runner->context = std::move(*context);
    runner->dispatch = runner->context->MakeDispatch(options.activations);
    runner->reference = MakeReferenceDispatch(&runner->context->executor());
    ModelOptions model_options;
    model_options.fuse = options.fuse;
    model_options.packer = options.float64 ? nullptr : runner->dispatch.get();
    model_options.executor = &runner->context->executor();
    auto model = Model::Load(path, model_options);
    if (!check(model)) return nullptr;
    runner->model = std::move(*model);
    SessionOptions session_options;
    session_options.kv = options.float64 ? DataType::kF64 : options.kv;
    session_options.activations = options.float64 ? DataType::kF64 : DataType::kF32;
    session_options.context = options.context;
    KernelDispatch& dispatch = options.float64 ? *runner->reference : *runner->dispatch;
    auto session = Session::Create(*runner->model, dispatch, session_options);
    if (!check(session)) return nullptr;
    runner->session = std::move(*session);
    return runner;
  }
};

}  // namespace tilewright::test
