#include "tilewright/rejection.h"

namespace tilewright {

std::string_view ReasonName(Reason reason) {
  switch (reason) {
    case Reason::kDevice:
      return "device";
    case Reason::kType:
      return "type";
    case Reason::kOrder:
      return "order";
    case Reason::kStriding:
      return "striding";
    case Reason::kPack:
      return "pack";
    case Reason::kQuant:
      return "quant";
    case Reason::kShape:
      return "shape";
    case Reason::kAlignment:
      return "alignment";
    case Reason::kPrologue:
      return "prologue";
    case Reason::kEpilogue:
      return "epilogue";
    case Reason::kScaling:
      return "scaling";
    case Reason::kPrecision:
      return "precision";
    case Reason::kGuarantee:
      return "guarantee";
    case Reason::kWorkspace:
      return "workspace";
    case Reason::kProvider:
      return "provider";
    case Reason::kQuarantined:
      return "quarantined";
  }
  return "unknown";
}

std::string Rejection::ToString() const {
  std::string text(ReasonName(reason));
  text += ": ";
  text += have;
  if (!need.empty()) {
    text += ", needs ";
    text += need;
  }
  return text;
}

}  // namespace tilewright
