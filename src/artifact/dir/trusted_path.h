#pragma once

#include <string>

#include "artifact/dir/dir_layout.h"
#include "core/filesystem.h"

namespace tilewright {

/// Why the folder `root` could be replaced by somebody who is not trusted, with the place and the
/// remedy; "" where it could not. Every folder from it up to "/" must belong to the owner of
/// `root`, this user, root or the owner of "/", and be writable by nobody else; of its group, only
/// where `trust.by_group`. In a sticky folder, like /tmp, others may write but not replace: there
/// what leads to `root` must belong to this user, root or the owner of "/", since anybody could
/// have been the first to take the name. Symbolic links in the path are held to the same. Sets
/// `trust.owner` and `trust.system`.
std::string ReplaceableRoot(Filesystem& files, const std::string& root,
                            const Filesystem::Stat& root_stat, Trust& trust);

}  // namespace tilewright
