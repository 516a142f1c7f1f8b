#include "tilewright/whole_file.h"

#include "core/atomic_file.h"

namespace tilewright {

Status WriteWholeFile(const std::string& path, std::string_view bytes) {
  return WriteFileAtomic(path, bytes);
}

Status CanWriteWholeFile(const std::string& path) {
  const Result<AtomicFile> file = AtomicFile::Create(path);
  return file ? Status() : Fail(file.error());
}

}  // namespace tilewright
