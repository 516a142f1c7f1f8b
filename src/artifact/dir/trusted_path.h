#pragma once

#include <string>

#include "artifact/dir/dir_layout.h"
#include "core/filesystem.h"

namespace tilewright {

/// How somebody who is not trusted could replace the folder `root`, with the place and the remedy;
/// "" if nobody could. Every folder from it up to "/" must belong to the owner of `root`, this
/// user, root or the owner of "/", and be writable by nobody else, except by its group if
/// `trust.by_group`. In a sticky folder such as /tmp, others may write but not replace; there, what
/// leads to `root` must belong to this user, root or the owner of "/", since anybody could have
/// been the first to take the name. The same rules apply to symbolic links in the path. Sets
/// `trust.owner` and `trust.system`.
std::string ReplaceableRoot(Filesystem& files, const std::string& root,
                            const Filesystem::Stat& root_stat, Trust& trust);

}  // namespace tilewright
