// What a folder of kernels reads beside entries. The first byte says what the rest is: 0 the file
// of a refusal, 1 the same with its digest made right again before, 2 the file of counters.
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>

#include "artifact/dir/counters_file.h"
#include "artifact/dir/negative_file.h"
#include "artifact/dir/total.h"
#include "core/sha256.h"
#include "tilewright/artifact_key.h"

namespace tilewright {
namespace {

constexpr std::size_t kDigestBytes = 32;

/// What is read is what would be written, and its records are any bytes.
void Refusal(std::string_view bytes) {
  ArtifactKey action;
  constexpr std::size_t kActionAt = 8;
  if (bytes.size() >= kActionAt + action.bytes.size()) {
    std::memcpy(action.bytes.data(), bytes.data() + kActionAt, action.bytes.size());
  }
  const auto negative = DecodeNegative(action, bytes);
  ArtifactKey other = action;
  other.bytes[0] ^= 1;
  if (DecodeNegative(other, bytes)) std::abort();
  if (!negative) return;
  const auto again = EncodeNegative(action, *negative);
  if (!again || *again != bytes) std::abort();
  (void)SpecOfRequestRecord(negative->request_record);
  (void)DiffKeyRecords(negative->request_record, negative->action_record);
}

std::string Sealed(std::string_view bytes) {
  std::string sealed(bytes);
  if (sealed.size() < kDigestBytes) return sealed;
  const std::size_t at = sealed.size() - kDigestBytes;
  const auto digest = Sha256(std::string_view(sealed).substr(0, at));
  if (digest) sealed.replace(at, kDigestBytes, std::string(digest->begin(), digest->end()));
  return sealed;
}

/// A folder of the process's own, in memory where there is such a file system.
class Folder {
 public:
  Folder() {
    path_ = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    path_ += "/tilewright-fuzz-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string File() const { return path_ + "/counters"; }

 private:
  std::string path_;
};

/// Any file is taken over as it is, or replaced by one from zero; both then count.
void Counters(std::string_view bytes) {
  static const Folder kFolder;
  const std::string path = kFolder.File();
  const auto write = [&path](std::string_view content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  };
  write(bytes);
  std::mutex mutex;
  bool moved = false;
  CountersFile::Folder folder;
  folder.create = [&](const std::string&, std::string_view content) {
    write(content);
    return 0;
  };
  folder.quarantine = [&](const std::string&, const Filesystem::Stat&) {
    moved = true;
    return unlink(path.c_str()) == 0;
  };
  const Trust trust{.trusted = StoreDir::Trusted::kGroup};
  CountersFile file(SystemFilesystem(), path, trust, folder, mutex);
  if (file.Open() != 0) std::abort();
  if (!moved && bytes.size() != CountersFile::kBytes) std::abort();
  std::array<std::uint64_t, CountersFile::kSlots> before{}, after{};
  file.GetSlots(before.data(), before.size());
  file.Add(CountersFile::kSlot0 + 7, 3);
  file.GetSlots(after.data(), after.size());
  if (after[7] != before[7] + 3 || (moved && after[7] != 3)) std::abort();
  // Whatever the totals say, what is added makes none smaller but what is at its limit.
  const auto add = [&file](CountersFile::Word word, const TotalFormat& format) {
    const std::int64_t had = format.Value(file.Get(word));
    file.Change(word, [&](std::uint64_t value) { return format.Changed(value, 150'000); });
    const std::int64_t has = format.Value(file.Get(word));
    if (has < had || (has == had && has != format.Max())) std::abort();
  };
  add(CountersFile::kEntries, kEntriesFormat);
  add(CountersFile::kEntryBytes, kBytesFormat);
}

}  // namespace
}  // namespace tilewright

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      tilewright::Refusal(bytes);
      break;
    case 1:
      tilewright::Refusal(tilewright::Sealed(bytes));
      break;
    default:
      tilewright::Counters(bytes);
  }
  return 0;
}
