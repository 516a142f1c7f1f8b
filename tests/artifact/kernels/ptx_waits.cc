#include "ptx_waits.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>
#include <sstream>
#include <vector>

namespace tilewright::test {
namespace {

struct Statement {
  std::string text;  // without the predicate
  bool predicated = false;
  bool label = false;
};

/// The statements of the entry's body, without braces of blocks, directives and comments.
std::vector<Statement> StatementsOf(std::string_view ptx) {
  std::vector<Statement> statements;
  const std::size_t body = ptx.find('{', ptx.find(".entry"));
  if (body == std::string_view::npos) return statements;
  std::string open;
  const auto end = [&](bool label) {
    Statement one{.text = open, .label = label};
    open.clear();
    if (one.text.empty() || one.text.front() == '.') return;
    if (one.text.front() == '@') {
      one.predicated = true;
      one.text.erase(0, one.text.find(' ') + 1);
    }
    statements.push_back(std::move(one));
  };
  for (std::size_t i = body + 1; i < ptx.size(); ++i) {
    const char c = ptx[i];
    if (c == '/' && ptx.substr(i, 2) == "//") {
      i = std::min(ptx.find('\n', i), ptx.size());
    } else if (c == ';') {
      end(false);
    } else if (c == ':' && ptx.substr(i, 2) != "::" && open.find(' ') == std::string::npos) {
      end(true);
    } else if (open.empty() && (c == '{' || c == '}')) {
      continue;
    } else if (c == ':' && ptx.substr(i, 2) == "::") {
      open.append("::");
      ++i;
    } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      open.push_back(c);
    } else if (!open.empty() && open.back() != ' ') {
      open.push_back(' ');
    }
  }
  return statements;
}

std::vector<std::string> PartsOf(const std::string& text) {
  std::istringstream opcode(text.substr(0, text.find(' ')));
  std::vector<std::string> parts;
  for (std::string part; std::getline(opcode, part, '.');) parts.push_back(part);
  return parts;
}

enum class Access { kNone, kRead, kWrite };

/// What a statement does to global memory. Addresses of no named space count as global ones.
Access AccessOf(const Statement& statement) {
  const std::vector<std::string> parts = PartsOf(statement.text);
  const auto place = [&](std::string_view space) {
    return std::find_if(parts.begin(), parts.end(),
                        [&](const std::string& part) { return part.starts_with(space); }) -
           parts.begin();
  };
  const auto none = static_cast<std::ptrdiff_t>(parts.size());
  const std::string& name = parts.front();
  if (name == "cp") {
    if (place("global") == none || place("prefetch") != none) return Access::kNone;
    return place("global") < place("shared") ? Access::kWrite : Access::kRead;
  }
  const bool writes = name == "st" || name == "atom" || name == "red";
  if (!writes && name != "ld") return Access::kNone;
  for (const char* space : {"param", "shared", "local", "const"}) {
    if (place(space) != none) return Access::kNone;
  }
  return writes ? Access::kWrite : Access::kRead;
}

/// The label that a branch at `from` means: of several of one name, which blocks of their own have,
/// the nearest.
std::optional<std::size_t> Target(const std::vector<Statement>& all, std::size_t from,
                                  const std::string& name) {
  std::optional<std::size_t> found;
  const auto distance = [&](std::size_t i) { return i > from ? i - from : from - i; };
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].label && all[i].text == name && (!found || distance(i) < distance(*found)))
      found = i;
  }
  return found;
}

/// Statements that may be next; nothing behind an end. nullopt for a branch that is not understood.
std::optional<std::vector<std::size_t>> Successors(const std::vector<Statement>& all,
                                                   std::size_t at) {
  const Statement& statement = all[at];
  const std::vector<std::string> parts = PartsOf(statement.text);
  std::vector<std::size_t> next;
  const bool ends = parts.front() == "ret" || parts.front() == "exit" || parts.front() == "trap";
  const bool jumps = !statement.label && (parts.front() == "bra" || parts.front() == "brx");
  if (jumps) {
    const std::optional<std::size_t> target =
        Target(all, at, statement.text.substr(statement.text.rfind(' ') + 1));
    if (!target) return std::nullopt;
    next.push_back(*target);
  }
  if ((statement.predicated || !(ends || jumps)) && at + 1 < all.size()) next.push_back(at + 1);
  return next;
}

}  // namespace

std::string PtxWaitTrouble(std::string_view ptx, ReadsAhead reads) {
  const std::vector<Statement> all = StatementsOf(ptx);
  if (all.empty()) return "no kernel";
  // Whether every path to a statement has waited: true until a path is found that has not.
  std::vector<bool> waited(all.size(), true);
  waited[0] = false;
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool waits = all[i].text == "griddepcontrol.wait" && !all[i].predicated;
      if (waited[i] || waits) continue;
      const auto next = Successors(all, i);
      if (!next) return all[i].text;
      for (const std::size_t n : *next) {
        changed = changed || waited[n];
        waited[n] = false;
      }
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].label) continue;
    const std::vector<std::string> parts = PartsOf(all[i].text);
    const Access access = AccessOf(all[i]);
    if (access == Access::kRead && std::find(parts.begin(), parts.end(), "nc") != parts.end())
      return all[i].text;
    if (waited[i]) continue;
    const bool ends = parts.front() == "ret" || parts.front() == "exit";
    const bool relaxed = parts.size() > 1 && parts[0] == "ld" && parts[1] == "relaxed";
    const bool reads_early =
        access == Access::kRead &&
        (reads == ReadsAhead::kNever || (reads == ReadsAhead::kPlacesToPrefetch && !relaxed));
    if (ends || access == Access::kWrite || reads_early) return all[i].text;
  }
  return "";
}

}  // namespace tilewright::test
