// Writes the templates that jinja_fuzz starts from into the folder given: one for each form and one with every kind of
// statement and expression.

#include <fstream>
#include <string>
#include <vector>

#include "model/chat/forms.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::vector<std::string> seeds;
  for (const auto& form : tilewright::ChatForms()) seeds.emplace_back(form.source);
  seeds.emplace_back(
      "{%- macro m(a, b='x') -%}{{ a ~ b }}{%- endmacro -%}{% set ns = namespace(n=0, l=[]) %}"
      "{% for k, v in {'a': 1, 'b': [2, 3.5]}.items() if k != 'z' %}{{ loop.index }}{{ m(k, b=v) }}"
      "{% set ns.l = ns.l + [v] %}{% else %}none{% endfor %}{{ ns.l | tojson(indent=2) }}");
  seeds.emplace_back(
      "{% for m in messages[::-1] %}{% if m.content is string and m['content'].startswith('a') %}"
      "{{ m.content.split(' ')[-1].strip() | upper }}{% continue %}{% elif not loop.last %}{% "
      "break %}"
      "{% endif %}{% endfor %}{{ messages | selectattr('role', 'equalto', 'user') | map(attribute="
      "'content') | list | length }}{% raw %}{{ }}{% endraw %}{# c #}{{ range(3) | join(', ') }}");
  seeds.emplace_back(
      "{% set t | trim %} {{ -n ** 2 // 3 % 4 + x * 1e3 - 1 }} {% endset %}{{ t[1:3] ~ t[::-1] }}"
      "{{ (1, 'é', none) }}{{ 'a' if n is divisibleby 7 and x < 1 <= n else missing | default('d') "
      "}}"
      "{{ strftime_now('%d %b %Y') }}{{ raise_exception('no') if n in [1, 2] }}"
      "{{ ['b', 'A'] | sort | unique | first }}{{ 'a\\n\\u00e9' | replace('a', 'b') | indent(2) "
      "}}");
  int count = 0;
  for (const std::string& seed : seeds) {
    std::ofstream(std::string(argv[1]) + "/seed" + std::to_string(count++), std::ios::binary)
        << seed;
  }
  return 0;
}
