"""Templates for make_jinja.py: one for each feature, and two forms of conversations, in our own words."""

from __future__ import annotations

from collections.abc import Iterator

VARIABLES: dict[str, object] = {
    "s": "  Größe 日本 \t\n",
    "word": "hello",
    "n": 7,
    "x": 2.5,
    "yes": True,
    "nothing": None,
    "empty": [],
    "list": ["b", "A", "c", "a"],
    "numbers": [3, 1, 2],
    "mixed": [1, "two", 3.0, None, True, {"k": "v"}, ["l"]],
    "d": {"b": 1, "a": "two", "items": 3, "nested": {"deep": [10, 20, {"z": "end"}]}},
    "people": [
        {"name": "Ann", "age": 30, "role": "user", "tags": ["x", "y"]},
        {"name": "bob", "age": 25, "role": "assistant", "tags": []},
        {"name": "Cid", "role": "user"},
    ],
    "quoted": "it's \"so\"\\\n\tü\x01",
}

# Expressions, each printed between brackets; one line each.
EXPRESSIONS = """
word
n + 1
n - 10
n * 3
n / 2
n // 2
-n // 2
n % 4
-n % 4
n ** 2
2 ** -1
x * 2
7.0
1e20
1e16
123456789012345.0
1e-5
0.0001
-x
+n
--n
1.5 // 0.4
-1.5 % 0.4
1_000
word ~ n ~ x ~ yes ~ nothing
1 ~ 2 ~ 3
word + ' ' + word
'a' 'b' "c"
word * 2
3 * 'ab'
[1] * 2 + [3]
(1, 2) + (3,)
[1, 'two', 3.0, none, true, {'k': 'v'}, ('t',), []]
(1,)
()
{}
{'a': 1, 'b': [2], 3: none}
quoted
[quoted]
['it\\'s', 'say "hi"', 'both \\' and "', 'tab\\t', '\\x41\\u00e9\\101', 'a\\qb', '\\u200b\\u00a0\\u3000é']
"line\\nend"
yes and word
nothing or word
not yes
not not n
nothing and 1
1 < 2 < 3
1 < 3 < 2
1 == 1.0
true == 1
'a' < 'b'
[1, 2] < [1, 3]
'é' > 'z'
1 in [1, 2]
'el' in word
'a' in d
'zz' not in d
1 not in numbers
missing in numbers
word in missing
n if yes else x
n if nothing
n if nothing else x if nothing else 'last'
(n if nothing) is defined
1 + 2 * 3 ** 2
(1 + 2) * 3
2 ** 3 ** 2
-2 ** 2
1 ~ 2 + 'x' ~ 3
not 1 == 2
1 == 2 or 2 == 2 and 3 == 4
'a' ~ 'b' == 'ab'
word[0]
word[-1]
word[10]
word[1:3]
word[:2]
word[-3:]
word[::-1]
word[::2]
word[4:1:-1]
s[3:6]
list[1:]
list[-2:]
list[::-1]
list[5:]
(1, 2, 3)[1:]
numbers[0]
numbers[-1]
numbers[9]
numbers.0
d.a
d['a']
d.nested.deep[2].z
d['nested']['deep'][0]
d['items']
d.get('a')
d.get('zz')
d.get('zz', 'else')
d.missing
d.missing is defined
nothing.missing
people[0].name
people[-1]['name']
people[2].age
word.missing
s.strip()
s.lstrip()
s.rstrip()
'xxaxx'.strip('x')
'xyaxy'.lstrip('yx')
word.upper()
'ABC'.lower()
'they are bill\\'s friends'.title()
'hELLO wORLD'.capitalize()
'a,b,,c'.split(',')
'a,b,,c'.split(',', 1)
'a,b,,c'.rsplit(',', 1)
'a,b,c'.split(',')[-1]
' a  b\\tc '.split()
' a  b c '.split(none, 1)
''.split(',')
''.split()
'a\\nb\\r\\nc\\n'.splitlines()
word.startswith('he')
word.startswith(('x', 'h'))
word.endswith('lo')
word.find('l')
word.rfind('l')
'日本語'.find('語')
word.find('z')
word.count('l')
word.replace('l', 'L')
word.replace('l', 'L', 1)
word.removeprefix('he')
word.removesuffix('lo')
', '.join(list)
'123'.isdigit()
''.isdigit()
numbers.index(2)
numbers.count(2)
d.keys() | list
d.values() | list
d.items() | list
s | trim
'xxaxx' | trim('x')
word | upper
'ABC' | lower
'ab cd-ef' | title
'aB' | capitalize
word | length
'日本' | length
list | length
list | count
d | length
missing | length
missing | default('none')
missing | default
nothing | default('none')
nothing | default('none', true)
'' | d('empty', boolean=true)
list | join(', ')
list | join
numbers | join('-')
people | join(', ', attribute='name')
word | replace('l', 'L')
word | replace('l', 'L', 1)
'aaa' | replace('', '-')
list | first
list | last
empty | first
list | reverse | list
word | reverse
list | sort
list | sort(reverse=true)
list | sort(case_sensitive=true)
numbers | sort
people | sort(attribute='name') | map(attribute='name') | list
d | dictsort | first
list | unique | list
['a', 'A', 'b'] | unique | list
numbers | max
numbers | min
empty | max
list | min
numbers | sum
people[:2] | sum(attribute='age')
people | map(attribute='name') | list
people | map(attribute='age', default=0) | list
people[:2] | map(attribute='tags.0', default='-') | list
list | map('upper') | list
list | map('replace', 'a', 'z') | join
people | selectattr('role', 'equalto', 'user') | map(attribute='name') | list
people | rejectattr('role', 'eq', 'user') | map(attribute='name') | list
people | selectattr('age') | map(attribute='name') | list
people | selectattr('age', 'defined') | list | length
people[:2] | selectattr('age', '>', 26) | list | length
numbers | select('odd') | list
numbers | select('>', 1) | list
numbers | reject('even') | list
mixed | select | list | length
mixed | select('string') | list
mixed | select('mapping') | list
'12' | int
' 12 ' | int
'12.7' | int
'abc' | int
'abc' | int(5)
x | int
'1.5' | float
'abc' | float
n | float
-5 | abs
(-5) | abs
x | string
n | string | length
mixed | string
'<b>' | safe
'a\\nb\\n\\nc' | indent
'a\\nb\\n\\nc' | indent(2, true)
'a\\nb\\n\\nc' | indent(2, blank=true)
'a\\nb' | indent('> ')
d | tojson
mixed | tojson
quoted | tojson
s | tojson
s | tojson(ensure_ascii=true)
'😀' | tojson(ensure_ascii=true)
d | tojson(indent=2)
[] | tojson(indent=2)
[[], {}, [1]] | tojson(indent=4)
d | tojson(sort_keys=true)
d | tojson(separators=(',', ':'))
1e20 | tojson
d | items | list
word is defined
missing is defined
missing is undefined
missing is not defined
nothing is none
word is none
word is string
n is string
d is mapping
list is mapping
list is iterable
word is iterable
n is iterable
d is iterable
missing is iterable
list is sequence
word is sequence
d is sequence
n is sequence
n is number
yes is number
x is number
n is integer
yes is integer
x is float
yes is boolean
yes is true
yes is false
n is true
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
n is eq 7
n is equalto(8)
n is ne 7
n is gt 6
n is ge 8
n is lt 8
n is le 6
1 is in numbers
n is not in numbers
'abc' is lower
'ABC' is upper
range is callable
nothing is sameas none
word is string and n is number
n if word is string else x
'a' if missing is defined and missing else 'b'
range(3) | list
range(1, 4) | list
range(5, 0, -2) | list
range(3) | length
range(0) | list
dict(a=1, b=2)
dict({'x': 1}, y=2)
namespace(a=1).a
strftime_now('%Y-%m-%d')
strftime_now('%d %b %Y')
strftime_now('%A %a %B %y %j %H:%M:%S %I %p %%')
n, word
missing
[missing]
{'a': missing}['a']
true and 'yes' or 'no'
True
None
none
false
'%' ~ 5
{'a': {'b': {}}}
{'a': 1}.a
[1, 2][1]
"a" if 1 else "b"
(1 if 0 else 2) + 1
'-' * 3 ~ '>'
1 - 2 - 3
8 / 2 / 2
10 % 4 * 2
list | length > 3
list | length + 1
'a' in list | join
not list | length == 4
word | upper | lower | length
word.upper() | lower
people[0].tags | join
(word ~ 'x') | upper
d.items() | length
list is string or list is iterable
d.nested is mapping and d.nested.deep is not string
1 if yes and not nothing else 2
loop is defined
""".strip().splitlines()

WRONG = """
{{ missing.attribute }}
{{ missing['key'] }}
{{ missing + 'x' }}
{{ missing() }}
{{ word + 1 }}
{{ 1 + none }}
{{ word - 'h' }}
{{ 1 in word }}
{{ 1 < 'a' }}
{{ [1] < 2 }}
{{ n.missing() }}
{{ 1 / 0 }}
{{ 1 % 0 }}
{{ n | length }}
{{ n | first }}
{{ list.append('x') }}
{{ d.pop('a') }}
{{ d.update({}) }}
{{ list | map('unknown_filter') | list }}
{{ [2, 'a'] | sort }}
{{ unknown_function() }}
{% for x in n %}{% endfor %}
{% for a, b in numbers %}{% endfor %}
{% set d.x = 1 %}
{% set nothing.x = 1 %}
{{ word | unknown }}
{{ word is unknown }}
{{ }}
{{ 1 + }}
{{ (1 }}
{{ 1) }}
{{ [1 }}
{{ {'a' 1} }}
{{ 'open }}
{{ word
{% if yes %}
{% if yes %}{% endfor %}
{% for x in list %}
{% endif %}
{% else %}
{% set %}
{% unknown %}
{% macro %}{% endmacro %}
{# open
{% raw %}open
{{ word word }}
{{ word.1.5.x }}
{{ range(1000000) | length }}
{% break %}
{{ ''.split('') }}
{{ list[::0] }}
{{ namespace(1) }}
{{ d | items | length }}
{{ word is divisibleby }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{{ 'a' if }}
{{ 1 + 2 ~ 3 + 4 }}
{{ people | map(attribute='tags.0') | list }}
{{ people | selectattr('age', '>', 26) | list }}
{% macro m() %}x{% endmacro m %}
{{ @ }}
""".strip().splitlines()

STATEMENTS: list[tuple[str, str]] = [
    ("text only", "Just text, { braces } and % and #.\n"),
    ("empty", ""),
    ("one line end goes", "text\n"),
    ("two line ends", "text\n\n"),
    ("crlf", "a\r\nb\r{% if true %}\r\nc\r\n{% endif %}\r\n"),
    ("if", "{% if n > 5 %}big{% elif n > 3 %}middle{% else %}small{% endif %}"),
    ("elif", "{% if n > 50 %}big{% elif n > 3 %}middle{% else %}small{% endif %}"),
    ("else", "{% if n > 50 %}big{% elif n > 30 %}middle{% else %}small{% endif %}"),
    ("nested if", "{% if yes %}{% if nothing %}a{% else %}b{% endif %}c{% endif %}"),
    ("for", "{% for x in list %}{{ x }},{% endfor %}"),
    ("for else", "{% for x in empty %}{{ x }}{% else %}none{% endfor %}"),
    ("for over characters", "{% for c in 'aé日' %}[{{ c }}]{% endfor %}"),
    ("for over a dictionary", "{% for k in d %}{{ k }};{% endfor %}"),
    ("for over items", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}"),
    ("for over the filter items", "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}"),
    ("for over dictsort", "{% for k, v in {'b': 1, 'A': 2} | dictsort %}{{ k }}={{ v }};{% endfor %}"),
    ("for with a filter", "{% for x in numbers if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% endfor %}"),
    ("for with a filter, nothing left", "{% for x in numbers if x > 9 %}{{ x }}{% else %}none{% endfor %}"),
    (
        "loop",
        "{% for x in list %}{{ loop.index }} {{ loop.index0 }} {{ loop.revindex }} {{ loop.revindex0 }} {{ loop.first }} {{ loop.last }} "
        "{{ loop.length }} {{ loop.previtem }} {{ loop.nextitem }}|{% endfor %}",
    ),
    ("nested loops", "{% for p in people %}{% for t in p.tags %}{{ loop.index }}{{ t }}{% endfor %}{{ loop.index }};{% endfor %}"),
    ("for over undefined", "[{% for x in missing %}{{ x }}{% endfor %}]"),
    ("for over undefined with else", "[{% for x in missing %}{{ x }}{% else %}none{% endfor %}]"),
    ("for over a tuple", "{% for x in 1, 'b', none %}{{ x }};{% endfor %}"),
    ("for over pairs", "{% for a, (b, c) in [(1, (2, 3)), (4, [5, 6])] %}{{ a }}{{ b }}{{ c }};{% endfor %}"),
    ("for over a slice", "{% for m in people[1:] %}{{ m.name }}{% endfor %}"),
    ("for reversed", "{% for m in people[::-1] %}{{ m.name }}{{ loop.first }}{% endfor %}"),
    ("break", "{% for x in list %}{% if x == 'c' %}{% break %}{% endif %}{{ x }}{% endfor %}!"),
    ("continue", "{% for x in list %}{% if x == 'A' %}{% continue %}{% endif %}{{ x }}{% endfor %}!"),
    ("break in the inner loop", "{% for a in numbers %}{% for b in numbers %}{% if b == 1 %}{% break %}{% endif %}{{ a }}{{ b }}{% endfor %};{% endfor %}"),
    ("set", "{% set a = n + 1 %}{{ a }}{% set a = 'b' %}{{ a }}"),
    ("set a tuple", "{% set a, b = 1, 2 %}{{ b }}{{ a }}"),
    ("set to a tuple", "{% set a = 1, 2 %}{{ a }}"),
    ("set does not leave a loop", "{% set a = 1 %}{% for x in numbers %}{% set a = a + x %}{{ a }};{% endfor %}{{ a }}"),
    ("set leaves an if", "{% set a = 1 %}{% if yes %}{% set a = 2 %}{% endif %}{{ a }}"),
    ("set in an if in a loop", "{% for x in numbers %}{% if x == 1 %}{% set q = x %}{% endif %}{{ q is defined }};{% endfor %}"),
    ("set replaces a given variable", "{% set word = word ~ '!' %}{{ word }}"),
    ("set a block", "{% set a %}x{{ n }}y{% endset %}[{{ a }}]{{ a | length }}"),
    ("set a block with filters", "{% set a | upper | replace('X', 'z') %}x{{ word }}y{% endset %}[{{ a }}]"),
    ("filter block", "{% filter upper %}x{{ word }}{% endfilter %}"),
    ("filter block chain", "{% filter trim | upper | replace('L', '-') %}  x{{ word }} {% endfilter %}"),
    ("namespace", "{% set ns = namespace(found=false, n=0) %}{% for x in numbers %}{% set ns.n = ns.n + x %}{% if x == 1 %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.n }} {{ ns.missing is defined }}"),
    ("namespace of a dictionary", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}"),
    ("namespace holds itself", "{% set ns = namespace(a=1) %}{% set ns.me = ns %}{{ ns.me.me.a }}"),
    ("macro", "{% macro m(a, b='x', c=n) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(1, c=3) }}{{ m(b=4, a=5) }}{{ m() }}"),
    ("macro sees the template's names", "{% set g = 1 %}{% macro m() %}{{ g }}{{ word }}{% endmacro %}{% set g = 2 %}{{ m() }}"),
    ("macro hides its own names", "{% macro m() %}{% set inner = 1 %}{{ inner }}{% endmacro %}{{ m() }}{{ inner is defined }}"),
    ("macro in a macro", "{% macro a(x) %}[{{ x }}]{% endmacro %}{% macro b(x) %}{{ a(x) }}{{ a(x ~ x) }}{% endmacro %}{{ b('q') }}"),
    ("macro calls itself", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}"),
    ("macro as a value", "{% macro m(x) %}({{ x }}){% endmacro %}{% set f = m %}{{ f(1) | length }}{{ m(2) ~ 'x' }}"),
    ("macro default uses another parameter", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}"),
    ("raise", "{% if n > 5 %}{{ raise_exception('n is ' ~ n) }}{% endif %}"),
    ("raise in a macro", "{% macro m() %}{{ raise_exception('no') }}{% endmacro %}a{{ m() }}"),
    ("raw", "{% raw %}{{ x }}{% if %}{% endraw %}!"),
    ("raw with signs", "a {%- raw -%}  {{ x }}  {%- endraw -%}  b"),
    ("comment", "a{# {{ x }} {% if %} #}b{#- c -#} d {# e #}\nf"),
    ("comment with signs", "a \n {#- c -#} \n b {#+ c +#}\n d"),
    ("generation", "{% generation %}{{ word }}{% endgeneration %}!"),
    ("trim blocks", "a\n{% if yes %}\nb\n{% endif %}\nc\n"),
    ("trim blocks, two line ends", "{% if yes %}\n\nb\n\n{% endif %}\n\nc"),
    ("lstrip blocks", "a\n    {% if yes %}\n    b\n    {% endif %}\n  c"),
    ("lstrip blocks, text before", "a   {% if yes %} b{% endif %}"),
    ("lstrip blocks, tabs", "a\n\t \t{% if yes %}b{% endif %}"),
    ("lstrip at the start", "   {% if yes %}b{% endif %}"),
    ("no lstrip for output", "a\n    {{ word }}\n    b"),
    ("lstrip comment", "a\n    {# c #}\n    b"),
    ("plus keeps", "a\n    {%+ if yes %}b{%+ endif +%}\nc"),
    ("minus strips", "a  \n  {%- if yes -%}  \n b \n {%- endif -%} \n c"),
    ("minus on output", "a  {{- word -}}  b"),
    ("minus strips wide spaces", "a\u3000\u00a0 {{- word -}} \u2003b"),
    ("minus in an expression", "{{ -1 }}{{-1}}{{ - 1 }}"),
    ("tag after tag on one line", "  {% if yes %}  {% if yes %}x{% endif %}  {% endif %}"),
    ("output at the line end", "{{ word }}\n{{ word }}\n"),
    ("data with braces", "{ { {{ word }} } }} %} #}"),
    ("dict at the end of output", "{{ {'a': {'b': 1}}}}"),
    ("strings with tags", "{{ '{% if %}' }}{{ '}}' }}{{ \"{{\" }}"),
    ("multi-line tags", "{{\n  word\n  |\n  upper\n}}{% set\n a\n =\n 1 %}{{ a }}"),
    ("multi-line dictionary", "{%- set a = {\n  'x': 1,\n  'y': [2,\n 3,],\n} -%}\n{{ a }}"),
    ("trailing commas", "{{ [1, 2,] }}{{ {'a': 1,} }}{{ (1, 2,) }}{{ '%s' | replace('%s', 'x',) }}"),
    ("not in if", "{% if not nothing %}a{% endif %}{% if 'x' not in word %}b{% endif %}{% if word is not none %}c{% endif %}"),
    ("if with undefined", "{% if missing %}a{% else %}b{% endif %}"),
    ("if with a generator", "{% if empty | map('upper') %}true{% endif %}{% if empty | map('upper') | list %}true{% endif %}"),
    ("generator is read once", "{% set g = list | map('upper') %}{{ g | join }}{{ g | join }}!"),
    ("short circuit", "{{ yes or missing.x }}{{ nothing and missing.x }}{{ 'a' if yes else missing.x }}"),
    ("list built in a loop", "{% set ns = namespace(l=[]) %}{% for x in list %}{% set ns.l = ns.l + [x ~ loop.index] %}{% endfor %}{{ ns.l }}{{ ns.l | join(' ') }}"),
    ("text built in a loop", "{% set ns = namespace(t='') %}{% for p in people %}{% set ns.t = ns.t + p.name + (', ' if not loop.last else '.') %}{% endfor %}{{ ns.t }}"),
    ("print statement with filters", "{{ (list | sort | first ~ '!') | upper }}"),
    ("names that are keywords elsewhere", "{% set list2 = 1 %}{% set class = 2 %}{{ list2 }}{{ class }}"),
    ("else of an outer if", "{% if nothing %}{% for x in list %}{% endfor %}{% else %}z{% endif %}"),
    ("call through a dictionary", "{% set o = {'f': word.upper} %}{{ o.f() }}"),
]

# --- The families ------------------------------------------------------------------------------

# What a conversation is written as, in our own words.
CHATML = """{%- for turn in messages -%}
  {{- '<|im_start|>' ~ turn.role ~ '\\n' ~ turn.content ~ '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"""

PHI4 = """{%- for turn in messages if turn.content is string -%}
  {{- ['<|im_start|>', turn.role, '<|im_sep|>', turn.content, '<|im_end|>'] | join -}}
{%- endfor -%}
{{- '<|im_start|>assistant<|im_sep|>' if add_generation_prompt else '' -}}"""

FAMILIES = {"chatml": CHATML, "phi4": PHI4}

_CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2}}}
_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a \"city\".",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name"},
                    "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                    "days": {"type": "integer", "default": 1},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "parts": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "number"}}}},
                    "any": {"type": ["string", "null"]},
                    "either": {"oneOf": [{"type": "string", "description": "a"}, {"type": "number"}], "default": "x"},
                },
                "required": ["city"],
            },
        },
    }
]

CONVERSATIONS: dict[str, dict[str, object]] = {
    "user": {"messages": [{"role": "user", "content": " Hello! "}]},
    "system": {"messages": [{"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": "Größe?\n日本 😀"}]},
    "turns": {
        "messages": [
            {"role": "system", "content": "You are a pirate."},
            {"role": "user", "content": "Where?"},
            {"role": "assistant", "content": "<think>\nhmm\n</think>\n\n There, \"mate\". "},
            {"role": "user", "content": "{{ why }} {% if %}"},
        ]
    },
    "answered": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    "two users": {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]},
    "tools": {"messages": [{"role": "user", "content": "Rain?"}], "tools": _TOOLS},
    "tool call": {
        "messages": [
            {"role": "user", "content": "Rain?"},
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "content": "no"},
        ]
    },
    "parts": {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " see "}]}]},
}


def conversations() -> dict[str, dict[str, object]]:
    """Return the variables of each conversation."""
    given = {"tools": None, "bos_token": "<s>", "eos_token": "</s>"}
    return {name: {**given, **variables} for name, variables in CONVERSATIONS.items()}


def all_cases() -> Iterator[dict[str, object]]:
    """Yield the cases without their results; what Python refuses has a name that begins with "wrong"."""
    for expression in EXPRESSIONS:
        yield {"name": f"expression {expression}", "template": "[{{ " + expression + " }}]", "variables": "common"}
    for name, template in STATEMENTS:
        yield {"name": name, "template": template, "variables": "common"}
    for template in WRONG:
        yield {"name": f"wrong {template}", "template": template, "variables": "common"}
    for family in FAMILIES:
        for name in CONVERSATIONS:
            for prompt in (True, False):
                case = {"name": f"family {family}, {name}, {prompt}", "template": family, "variables": name}
                yield {**case, "add_generation_prompt": prompt}
