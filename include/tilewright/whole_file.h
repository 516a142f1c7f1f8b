#pragma once

#include <string>
#include <string_view>

#include "tilewright/result.h"

namespace tilewright {

/// Writes a file whole: a reader, or the next run after a crash, sees the old file or the new one,
/// never a part. A symbolic link stays, and the file that it names is replaced. Errors name the path
/// and the system's reason: kNotFound without its folder, kInvalidArgument for a device or a pipe,
/// else kIo; the old file is then what it was. Any thread.
Status WriteWholeFile(const std::string& path, std::string_view bytes);

/// The error that WriteWholeFile would meet now, if any, for work that takes long before there is
/// something to write. Makes a file beside `path` and removes it; what `path` names is not touched.
Status CanWriteWholeFile(const std::string& path);

}  // namespace tilewright
