#include "engine/workspace.h"

#include "core/text.h"
#include "tilewright/stages.h"

namespace tilewright {

std::optional<Rejection> CheckWorkspace(const Workspace& workspace, const WorkspaceSize& needed) {
  if (workspace.partials_size >= needed.partials && workspace.barriers_size >= needed.barriers)
    return std::nullopt;
  return Rejection{Reason::kShape,
                   Format("a workspace of {} bytes of partials and {} of barriers",
                          workspace.partials_size, workspace.barriers_size),
                   Format("{} and {}", needed.partials, needed.barriers)};
}

Result<OwnedWorkspace> OwnedWorkspace::Make(const WorkspaceSize& size, Device& device) {
  OwnedWorkspace owned;
  Result<DeviceMemory> barriers = device.Allocate(size.barriers);
  if (!barriers) return Fail(barriers.error());
  Result<DeviceMemory> partials = device.Allocate(size.partials);
  if (!partials) return Fail(partials.error());
  owned.barriers_ = std::move(*barriers);
  owned.partials_ = std::move(*partials);
  Workspace& w = owned.workspace_;
  w.barriers = owned.barriers_.data(), w.barriers_size = owned.barriers_.size();
  w.partials = owned.partials_.data(), w.partials_size = owned.partials_.size();
  if (Status status = device.Fill(w.barriers, 0, w.barriers_size, device.default_stream()); !status)
    return Fail(status.error());
  return owned;
}

}  // namespace tilewright
