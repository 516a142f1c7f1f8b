#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/result.h"
#include "tilewright/tensor.h"
#include "tilewright/types.h"

namespace tilewright {

/// Type of a metadata value, numbered as in the file format.
enum class GgufType : std::uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};
/// "u8", "string", "array", ...
std::string_view GgufTypeName(GgufType type);

/// A tensor type of the file format. Types that Tilewright knows only by name have `dtype` kNone.
struct GgmlTypeInfo {
  std::uint32_t id;       ///< the number in the file
  std::string_view name;  ///< "q4_k", "iq4_xs", ...
  int block_elements;     ///< 0 for a type that was removed from the format: its size is unknown
  int block_bytes;
  DataType dtype;  ///< kNone: not supported
};
/// The type with this id, or nullptr if the id is unknown.
const GgmlTypeInfo* FindGgmlType(std::uint32_t id);
/// The file's type for `dtype`, or nullptr if GGUF has none (kNone, kU4, kF8E4M3, kU8).
const GgmlTypeInfo* FindGgmlType(DataType dtype);

/// A metadata value inside a file: a view that is valid as long as the file's memory. Its bytes
/// were checked when the file was opened.
class GgufValue {
 public:
  GgufValue() = default;
  /// Used by the reader. `bytes` is the payload: the scalar, the characters, or the packed elements
  /// of an array.
  GgufValue(GgufType type, GgufType element_type, std::uint64_t count,
            std::span<const std::byte> bytes)
      : type_(type), element_type_(element_type), count_(count), bytes_(bytes) {}

  GgufType type() const { return type_; }
  /// For arrays, type and number of the elements; for others, type() and 1.
  GgufType element_type() const { return element_type_; }
  std::uint64_t count() const { return count_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  /// "u32", "array of string", ...
  std::string TypeText() const;

  /// The value of any integer type; nullopt if this is not an integer or does not fit.
  std::optional<std::int64_t> Signed() const;
  std::optional<std::uint64_t> Unsigned() const;
  /// The value of f32 or f64; nullopt for other types (integers are not converted).
  std::optional<double> Float() const;
  std::optional<bool> Bool() const;
  std::optional<std::string_view> String() const;
  /// The elements of an array (of any type, including arrays), in order; empty if this is not an
  /// array.
  std::vector<GgufValue> Elements() const;

 private:
  GgufType type_ = GgufType::kU8;
  GgufType element_type_ = GgufType::kU8;
  std::uint64_t count_ = 0;
  std::span<const std::byte> bytes_;
};

struct GgufEntry {
  std::string_view key;
  GgufValue value;
};

/// A tensor of a file. `offset` counts from the start of the file that holds it. The range [offset, offset +
/// bytes) was checked: it lies within the file and overlaps no other tensor.
struct GgufTensor {
  std::string_view name;
  /// Innermost first; a weight [n][k] has shape {k, n, 1, 1}.
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};
  int dims = 0;
  std::uint32_t type_id = 0;
  DataType dtype = DataType::kNone;  ///< kNone: a type that is not supported
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  ///< 0 if the size of the type is unknown
  std::uint32_t part = 0;   ///< of a split model: which of its files holds it
};

/// A GGUF file (version 2 or 3, little endian), mapped into memory read-only; or all files of a model
/// that was split ("x-00001-of-00003.gguf"), which then count as one: the metadata is that of the
/// first, the tensors those of all.
///
/// Every length, count and offset is checked before it is used, so a damaged or hostile file gives
/// an error (kCorrupt, or kUnsupported for a valid file that Tilewright cannot use), never a crash
/// and never an allocation larger than a small multiple of the file. A tensor of an unsupported
/// type is not an error at Open, so that metadata can be read and listed; it is one in View() and
/// Validate().
///
/// The mapping is shared with other processes that have the file open. If the file is shortened
/// later, the system raises SIGBUS when a lost page is accessed; CheckUnchanged() reports whether
/// the file has changed so far. Writers that replace the file by rename (as GgufWriter does) never
/// cause this.
///
/// Threads: const functions may be called from any number of threads.
class GgufFile {
 public:
  /// Maps `path`, or reads it as a whole where the system does not map it, and checks its entire
  /// structure. Reads no tensor data of a mapped file. Takes 2 to 15 ms for a vocabulary of 128k
  /// tokens. If it is one of the files of a split model, whichever, the others are opened too.
  /// Errors: kNotFound (also of another file of the model), kIo, kInvalidArgument (not a regular
  /// file), kCorrupt (also for files that do not belong together), kUnsupported (version, byte
  /// order).
  static Result<GgufFile> Open(const std::string& path);
  /// As Open, for bytes that the caller keeps alive; `name` appears in messages. For View(),
  /// `bytes` should be aligned to 64. kUnsupported for a file of a split model.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes, std::string name);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  /// Of a split model, that of its first file.
  const std::string& path() const { return path_; }
  std::uint32_t version() const { return version_; }
  std::uint64_t alignment() const { return alignment_; }
  /// Of all files of a split model.
  std::uint64_t file_bytes() const;
  /// Sum of the tensors' bytes.
  std::uint64_t tensor_bytes() const;

  /// Metadata in the order of the file.
  std::span<const GgufEntry> entries() const { return entries_; }
  const GgufValue* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  /// The value of `key`: kNotFound if absent, kCorrupt if it has another type or does not fit; both
  /// name the key and the types. Integers of any width and sign are accepted if the value fits.
  Result<std::uint32_t> U32(std::string_view key) const;
  Result<std::uint64_t> U64(std::string_view key) const;
  Result<std::int32_t> I32(std::string_view key) const;
  Result<std::int64_t> I64(std::string_view key) const;
  Result<float> F32(std::string_view key) const;
  Result<bool> Bool(std::string_view key) const;
  Result<std::string_view> String(std::string_view key) const;
  /// As above, but returns `absent` if the key is missing. A value of the wrong type is still an
  /// error.
  Result<std::uint32_t> U32(std::string_view key, std::uint32_t absent) const;
  Result<float> F32(std::string_view key, float absent) const;
  Result<bool> Bool(std::string_view key, bool absent) const;
  Result<std::string_view> String(std::string_view key, std::string_view absent) const;
  /// Arrays. The views of Strings() point into the mapping.
  Result<std::vector<std::string_view>> Strings(std::string_view key) const;
  Result<std::vector<std::uint32_t>> U32s(std::string_view key) const;
  Result<std::vector<std::int32_t>> I32s(std::string_view key) const;
  Result<std::vector<float>> F32s(std::string_view key) const;

  /// Tensors in the order of the file.
  std::span<const GgufTensor> tensors() const { return tensors_; }
  /// nullptr if there is no tensor of this name.
  const GgufTensor* FindTensor(std::string_view name) const;
  /// As FindTensor; kNotFound names the tensor.
  Result<const GgufTensor*> Tensor(std::string_view name) const;
  /// The raw bytes of a tensor of this file; empty if the size of its type is unknown.
  std::span<const std::byte> Bytes(const GgufTensor& tensor) const;
  /// A view for kernels. The memory is read-only: writing through it faults. kUnsupported, naming
  /// tensor and type, if the type is not supported.
  Result<TensorView> View(const GgufTensor& tensor) const;
  Result<TensorView> View(std::string_view name) const;
  /// Ok if every tensor can be viewed; else names the first that cannot and the number of others.
  Status Validate() const;

  /// kIo if the size or modification time of the file has changed since it was opened. Always Ok
  /// after Parse().
  Status CheckUnchanged() const;

  /// Tells the system that a tensor's pages are not needed for now (after its weights were packed):
  /// they leave this process's resident set and are read again from the page cache or the disk when
  /// accessed. No effect after Parse(). In a file of GgufWriter::Generate it takes back one Fetch.
  void Release(const GgufTensor& tensor) const;
  void ReleaseAll() const;
  /// Asks the system to read a tensor's pages in advance.
  void WillNeed(const GgufTensor& tensor) const;
  /// To be called before the bytes of a tensor, or of a part of one, are read: in a file of
  /// GgufWriter::Generate it makes the whole tensor, where it is not there, and it stays until every
  /// Fetch was taken back by a Release. Returns the errors of the source; kInvalidArgument if the
  /// file has no such bytes. No effect on other files.
  Status Fetch(const GgufTensor& tensor) const;

 private:
  friend class GgufWriter;
  class Mapping;
  class Generator;
  struct Part;
  GgufFile();
  Status AddPart(Part part);
  Status AddOtherParts(const std::string& prefix, std::uint64_t count);
  Status OrderTensors();
  std::span<const std::byte> BytesOfPart(const GgufTensor& tensor) const;
  void Advise(const GgufTensor& tensor, int advice) const;
  Result<GgufValue> Need(std::string_view key) const;
  Error TypeError(std::string_view key, const GgufValue& value, std::string_view wanted) const;
  Error Unsupported(const GgufTensor& tensor) const;
  template <class T>
  Result<T> Integer(std::string_view key) const;
  template <class T>
  Result<std::vector<T>> Integers(std::string_view key) const;

  std::string path_;
  std::vector<Part> parts_;               // in their order; most models have one
  std::unique_ptr<Generator> generator_;  // of a file that is nowhere else
  std::uint32_t version_ = 0;
  std::uint64_t alignment_ = 32;
  std::vector<GgufEntry> entries_;
  std::vector<GgufTensor> tensors_;
  std::vector<std::uint32_t> entry_order_;   // indices of entries_ sorted by key
  std::vector<std::uint32_t> tensor_order_;  // indices of tensors_ sorted by name
};

/// A tensor to write.
struct GgufTensorSpec {
  std::string name;
  DataType dtype = DataType::kNone;
  std::array<std::int64_t, 4> shape{1, 1, 1, 1};  ///< innermost first
  int dims = 1;
};

/// Writes a GGUF version 3 file, little endian, alignment 32. The same calls give the same bytes.
/// One thread at a time.
class GgufWriter {
 public:
  /// Receives the next bytes of the tensor that is being written.
  using Sink = std::function<Status(std::span<const std::byte>)>;
  /// Passes all bytes of tensor `index` to `sink`, in any number of pieces (each is one write, so
  /// avoid tiny ones). Called once for each tensor, in the order of AddTensor. An error stops the
  /// writing and is returned by Write().
  using Source = std::function<Status(std::size_t index, const Sink& sink)>;

  /// Metadata, in the order of the calls. A key that is empty, was set before or is
  /// general.alignment is an error, which Write() reports.
  void SetU32(std::string_view key, std::uint32_t value);
  void SetU64(std::string_view key, std::uint64_t value);
  void SetI32(std::string_view key, std::int32_t value);
  void SetF32(std::string_view key, float value);
  void SetBool(std::string_view key, bool value);
  void SetString(std::string_view key, std::string_view value);
  void SetStrings(std::string_view key, std::span<const std::string> values);
  void SetI32s(std::string_view key, std::span<const std::int32_t> values);
  void SetF32s(std::string_view key, std::span<const float> values);
  /// A value read from another file, of any type.
  void SetValue(std::string_view key, const GgufValue& value);

  /// kInvalidArgument for a name that is empty, too long or taken, a dimension below 1 or not a
  /// multiple of the block, or a type that the format does not have.
  Status AddTensor(GgufTensorSpec spec);
  std::span<const GgufTensorSpec> tensors() const { return tensors_; }
  /// The size that the file will have.
  std::uint64_t file_bytes() const;

  /// Writes to a temporary file beside `path`, syncs it, and renames it, so `path` is either the
  /// complete new file or what it was before. If `path` is a symbolic link, its target is replaced;
  /// anything but a regular file is refused (kInvalidArgument). On any error (no space, no
  /// permission, a source that fails or provides the wrong number of bytes), the temporary file is
  /// removed.
  Status Write(const std::string& path, const Source& source) const;

  /// The same file without one: nothing is written, and GgufFile::Fetch calls `source` for a tensor,
  /// in any order and again after a Release. `name` appears in messages. Errors: those of the
  /// metadata; kOutOfMemory for lack of addresses.
  Result<GgufFile> Generate(std::string name, Source source) const;

 private:
  std::vector<std::byte> Header() const;
  void Key(std::string_view key, GgufType type);
  void Array(std::string_view key, GgufType element, std::uint64_t count);

  std::vector<std::byte> metadata_;
  std::uint64_t entries_ = 0;
  std::vector<std::string> keys_;
  std::string first_error_;
  std::vector<GgufTensorSpec> tensors_;
};

}  // namespace tilewright
