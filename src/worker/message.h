#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tilewright/result.h"
#include "tilewright/tuner.h"

namespace tilewright::worker {

/// Increased with every change of the messages or of what they mean. The frame and the message
/// "hello" never change, so that any two versions can tell each other apart.
inline constexpr std::string_view kProtocol = "3";

/// What parent and worker send each other: a verb and its words (docs/worker.md lists them).
struct Message {
  std::string verb;
  std::vector<std::string> words;

  bool operator==(const Message&) const = default;
};

inline constexpr std::size_t kMostBytes = std::size_t{1}
                                          << 20;  ///< of a message, without its frame

/// The message in its frame. kInvalidArgument if it is too long.
Result<std::string> Encode(const Message& message);

/// Cuts a stream of bytes into messages.
class MessageReader {
 public:
  void Add(std::string_view bytes) { bytes_ += bytes; }
  /// The next message, nullopt until it is whole. kCorrupt for anything that Encode does not write.
  Result<std::optional<Message>> Next();
  /// Whether the beginning of a message is waiting for its rest.
  bool incomplete() const { return !bytes_.empty(); }

 private:
  std::string bytes_;
};

/// "outcome": what a trial ended with, and whether the device is lost since.
struct Reply {
  Tuner::Outcome outcome;
  bool device_lost = false;
};
Message MessageOf(const Reply& reply);
Result<Reply> ReplyOf(const Message& message);

/// "error": an error of the library.
Message MessageOf(const Error& error);
/// The error in a message of that verb; nullopt for any other message.
std::optional<Error> ErrorOf(const Message& message);

}  // namespace tilewright::worker
