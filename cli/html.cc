#include "html.h"

#include <fmt/format.h>

namespace tilewright::cli {
namespace {

constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{0}</title>
<style>
:root {{ color-scheme: light dark; --text: #1c1c1c; --back: #ffffff; --line: #d8d8d8; --soft: #666666; --bar: #2f6fb0; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --text: #e4e4e4; --back: #16181b; --line: #3a3e44; --soft: #9aa0a8; --bar: #6aa9e8; }}
}}
body {{ margin: 2em; font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); }}
table {{ border-collapse: collapse; margin: 1em 0; }}
th, td {{ padding: 0.25em 0.75em 0.25em 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }}
th {{ font-weight: 600; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
code {{ font: 0.87em ui-monospace, monospace; overflow-wrap: anywhere; }}
.facts th {{ color: var(--soft); font-weight: 400; }}
svg {{ display: block; }}
.bar {{ fill: var(--bar); }}
.mark {{ stroke: var(--text); fill: none; }}
</style>
</head>
<body>
<h1>{0}</h1>
)";

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string html;
  html.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        // HTML has no control characters.
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') {
          html += c;
        } else {
          html += "\uFFFD";
        }
    }
  }
  return html;
}

HtmlPage::HtmlPage(std::string_view title) { body_ = fmt::format(kHead, EscapeHtml(title)); }

void HtmlPage::Facts(const std::vector<std::pair<std::string, std::string>>& facts) {
  body_ += "<table class=\"facts\">\n";
  for (const auto& [name, value] : facts) {
    body_ += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", EscapeHtml(name), EscapeHtml(value));
  }
  body_ += "</table>\n";
}

void HtmlPage::Heading(std::string_view text) {
  body_ += fmt::format("<h2>{}</h2>\n", EscapeHtml(text));
}

void HtmlPage::Paragraph(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", EscapeHtml(text));
}

void HtmlPage::Table(const std::vector<Column>& columns,
                     const std::vector<std::vector<std::string>>& rows) {
  const auto of_class = [&](std::size_t i) { return columns[i].number ? " class=\"n\"" : ""; };
  body_ += "<table>\n<thead><tr>";
  for (std::size_t i = 0; i < columns.size(); ++i)
    body_ += fmt::format("<th{}>{}</th>", of_class(i), EscapeHtml(columns[i].title));
  body_ += "</tr></thead>\n<tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    body_ += "<tr>";
    for (std::size_t i = 0; i < columns.size(); ++i)
      body_ += fmt::format("<td{}>{}</td>", of_class(i), row[i]);
    body_ += "</tr>\n";
  }
  body_ += "</tbody>\n</table>\n";
}

std::string HtmlPage::Text() const { return body_ + "</body>\n</html>\n"; }

}  // namespace tilewright::cli
