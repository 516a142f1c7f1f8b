#pragma once

#include <vector>

#include "tilewright/chat.h"
#include "verbs.h"

namespace tilewright::cli {

/// The template that the options or the file name; prints the warning where the file's own is not
/// used.
Result<ChatTemplate> OpenChatTemplate(const RunOptions& options, const Tokenizer& tokenizer);
/// What a conversation begins with: the system message, if there is one.
std::vector<ChatMessage> FirstMessages(const RunOptions& options);

/// What keeps `run --interactive` from working as the options are; nullptr: nothing.
const char* ConflictWithInteractive(const RunOptions& options);
/// A conversation: each line of standard input is a message of the user, and is answered.
int Converse(const RunOptions& options);

}  // namespace tilewright::cli
