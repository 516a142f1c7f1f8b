#pragma once

#include <optional>

#include "tilewright/operation.h"
#include "tilewright/rejection.h"

namespace tilewright {

/// nullopt where `workspace` has the partials and barriers that a launch needs.
std::optional<Rejection> CheckWorkspace(const Workspace& workspace, const WorkspaceSize& needed);

}  // namespace tilewright
