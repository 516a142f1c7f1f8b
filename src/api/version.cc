#include "tilewright/tilewright.h"

namespace tilewright {

std::string_view Version() { return TILEWRIGHT_VERSION; }

}  // namespace tilewright
