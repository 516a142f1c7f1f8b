#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tilewright::cli {

/// Text as it stands in an element or a quoted attribute of HTML.
std::string EscapeHtml(std::string_view text);

/// A page that needs nothing else: no script, no font, no file; light or dark as the system is.
/// Everything given is text, except for the cells of tables, which are HTML.
class HtmlPage {
 public:
  explicit HtmlPage(std::string_view title);
  /// What the page is about: names and values.
  void Facts(const std::vector<std::pair<std::string, std::string>>& facts);
  void Heading(std::string_view text);
  void Paragraph(std::string_view text);

  struct Column {
    std::string title;
    bool number = false;  ///< aligned right
  };
  void Table(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows);

  std::string Text() const;

 private:
  std::string body_;
};

}  // namespace tilewright::cli
