#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/jinja/value.h"

namespace tilewright::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

enum class ExprKind : std::uint8_t {
  kConstant,   ///< constant
  kName,       ///< name
  kList,       ///< args
  kTuple,      ///< args
  kDict,       ///< args: key, value, key, ...
  kUnary,      ///< name is the operator, args[0]
  kBinary,     ///< name is the operator, args[0] and args[1]
  kCompare,    ///< args[0] ops[0] args[1] ops[1] args[2] ...
  kAnd,        ///< args[0], args[1]
  kOr,         ///< args[0], args[1]
  kConcat,     ///< args
  kCondition,  ///< args: value, test and perhaps what else
  kMember,     ///< args[0].name
  kItem,       ///< args[0][args[1]]
  kSlice,      ///< args: what, begin, end, step; those left out are null
  kCall,       ///< args[0](args[1], ..., named)
  kFilter,     ///< args[0] | name(args[1], ..., named); args[0] is null in a filter of a block
  kTest,       ///< args[0] is name(args[1], ...)
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int line = 0;
  int depth = 1;  ///< of the tree below: bounds recursion
  std::string name;
  Value constant;
  std::vector<std::string> ops;
  std::vector<ExprPtr> args;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Statement;
using Block = std::vector<Statement>;

/// What a value is assigned to: a name, a member of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string member;  ///< `name.member`, if not empty
  std::vector<Target> parts;
};

struct MacroNode {
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> parameters;  ///< with defaults or null
  Block body;
};

enum class StatementKind : std::uint8_t {
  kText,      ///< text
  kPrint,     ///< expr
  kIf,        ///< branches: conditions (null: else) with their blocks
  kFor,       ///< target, expr, filter (may be null), body, otherwise
  kSet,       ///< target, expr
  kSetBlock,  ///< target, filter (may be null), body
  kFilter,    ///< filter, body
  kBlock,     ///< body, as it is (`generation`)
  kMacro,     ///< macro
  kBreak,
  kContinue,
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;
  ExprPtr expr, filter;
  Target target;
  std::vector<std::pair<ExprPtr, Block>> branches;
  Block body, otherwise;
  std::unique_ptr<const MacroNode> macro;
};

}  // namespace tilewright::jinja
