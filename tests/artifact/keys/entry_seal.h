#pragma once

#include <string>

namespace tilewright::test {

/// Corrects the digests of an entry file after it was changed, as far as its header still says
/// where they are, as an attacker who writes wrong entries on purpose would. Then only the parser
/// can detect the change.
void SealEntry(std::string& file);

}  // namespace tilewright::test
