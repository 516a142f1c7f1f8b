"""The texts that the goldens are made from. All of them were written for this purpose.

PROMPTS          name -> text, continued greedily (`generation.json`)
tokenizer_cases  -> (name, bytes) pairs (`tokenizer_*.json`)
CONVERSATIONS    name -> messages (`chat.json`)
TRAINING_TEXT    what the little vocabularies are trained on

Changing anything here changes the goldens: run make_goldens.py again.
"""

from __future__ import annotations

import random

# --- Prompts -----------------------------------------------------------------------------------

_PYTHON = '''\
import math


def is_prime(n: int) -> bool:
    """Return whether n is a prime number."""
    if n < 2:
        return False
    for divisor in range(2, math.isqrt(n) + 1):
        if n % divisor == 0:
            return False
    return True


def primes_below(limit: int) -> list[int]:
    """Return all primes smaller than limit."""
'''

_CPP = """\
#include <algorithm>
#include <cstdint>
#include <vector>

// Returns the index of the largest element; ties go to the first one.
template <typename T>
std::size_t argmax(const std::vector<T>& values) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i] > values[best]) {
      best = i;
    }
  }
  return best;
}

// Returns the sum of all elements, accumulated in double precision.
template <typename T>
double sum("""

_PROSE = (
    "The lighthouse keeper had not spoken to anyone for eleven days when the boat finally appeared "
    "on the horizon. He put down his book, climbed the ninety-two steps to the lamp room, and "
)

_GERMAN = (
    "Der Müller von Grünheide besaß drei Söhne, eine Mühle und einen störrischen Esel. Als er alt "
    "wurde, rief er die Söhne zu sich und sagte: »Ich kann nicht länger über die Brücke gehen, "
    "deshalb müsst ihr künftig das Mehl zum Bäcker bringen.« Der jüngste Sohn"
)

_FRENCH = (
    "À l'aube, la vieille boulangère ouvrait déjà ses volets. L'odeur du pain chaud descendait "
    "jusqu'à la gare, où les voyageurs, encore endormis, cherchaient leur monnaie. « Qu'est-ce que "
    "vous prendrez aujourd'hui ? » demandait-elle, bien qu'elle connût la réponse. Le facteur"
)

_CHINESE = (
    "从前有一座山，山上有一座庙，庙里住着一位老和尚和一个小和尚。"
    "有一天，老和尚对小和尚说：“今天我们要下山去买米。”小和尚"
)

_ARABIC_HEBREW = (
    "كانت المدينة القديمة تقع على ضفة النهر، وكان أهلها يحبون القصص. في المساء يجلسون ويتحدثون. "
    "העיר העתיקה שכנה על גדת הנהר, ותושביה אהבו סיפורים. בערב הם"
)

_JAPANESE_EMOJI = (
    "昨日は友達と海へ行きました🌊😀。天気がとても良くて、アイスクリーム🍦を食べました。"
    "한국어도 조금 배웠어요 👩‍👩‍👧‍👦🇯🇵👍🏽。明日は"
)

_CHATML = (
    "<|im_start|>system\nYou are a careful assistant who answers in one short paragraph.<|im_end|>\n"
    "<|im_start|>user\nWhy does ice float on water?<|im_end|>\n"
    "<|im_start|>assistant\nBecause water expands when it freezes, ice is less dense than liquid water.<|im_end|>\n"
    "<|im_start|>user\nAnd what would happen to lakes in winter if it did not?<|im_end|>\n"
    "<|im_start|>assistant\n"
)

_MEETING = """\
# Minutes of the workshop on warehouse routing, second session

Present: A. Okafor (chair), B. Lindqvist, C. Moreau, D. Tanaka, E. Petrov (minutes).

1. Opening. The chair opened the session at 09:15 and thanked everybody for coming in spite of the snow. The minutes of
the first session were approved with one correction: the pilot site handles 14,200 parcels a day, not 1,420.

2. Report on the pilot. B. Lindqvist reported that the new routing had been running for eleven weeks. The median time
from intake to loading fell from 47 to 31 minutes, and the 95th percentile from 142 to 78 minutes. Two incidents were
recorded:

   - 2031-02-03: the conveyor in hall C stopped for 26 minutes because a label printer had run out of paper and the
     sorter kept asking for labels. The alarm had been acknowledged by nobody, since it was shown on a screen behind a
     pillar.
   - 2031-02-19: parcels for the postal codes 80331 to 80339 were sent to gate 17 instead of gate 7. The cause
     was a table in which the gate was stored as text, and in which somebody had typed "1 7".

D. Tanaka asked whether the improvement was due to the routing or to the season. B. Lindqvist answered that the volume
had been 8% above that of the previous year, so that the season, if anything, had worked against the result.

3. Cost. C. Moreau presented a table:

   | item            | planned (EUR) | actual (EUR) |
   |-----------------|--------------:|-------------:|
   | scanners        |        48,000 |       51,350 |
   | software        |       120,000 |      118,900 |
   | training        |        15,000 |       22,475 |
   | total           |       183,000 |      192,725 |

4. Decision. It was agreed to extend the routing to halls A and B. E. Petrov will write the plan; D. Tanaka will review
it.

5. Summary of the discussion in one sentence:"""


def _log_lines(count: int) -> str:
    """Return `count` lines of an invented service log (the seed is fixed)."""
    generator = random.Random(20260401)
    subjects = ["scheduler", "cache", "router", "storage", "sessions"]
    events = [
        "opened connection {a} to shard {b}",
        "request /api/v{b}/items/{a} took {c} ms",
        "evicted {a} blocks, {c} remain free",
        "retry {b} of 5 after timeout ({c} ms)",
        "checkpoint 0x{a:08x} written",
    ]
    lines = []
    second = 0
    for _ in range(count):
        second += generator.randrange(1, 40)
        event = generator.choice(events).format(
            a=generator.randrange(100, 90000), b=generator.randrange(1, 5), c=generator.randrange(2, 950)
        )
        level = generator.choice(["INFO", "INFO", "WARN", "DEBUG"])
        lines.append(f"12:{second // 60:02d}:{second % 60:02d} {level:<5} [{generator.choice(subjects)}] {event}\n")
    return "".join(lines)


_LONG = (
    _MEETING
    + " the routing works and will be extended.\n\n---\n\n```text\n"
    + _log_lines(22)
    + "```\n\n"
    + _PYTHON
    + "    return [n for n in range(limit) if is_prime(n)]\n\n"
    + _GERMAN
    + " nickte.\n\nQuestion: which incidents were recorded during the pilot?\nAnswer:"
)

PROMPTS = {
    "one_token": "Hello",
    "python": _PYTHON,
    "cpp": _CPP,
    "english": _PROSE,
    "german": _GERMAN,
    "french": _FRENCH,
    "chinese": _CHINESE,
    "arabic_hebrew": _ARABIC_HEBREW,
    "japanese_emoji": _JAPANESE_EMOJI,
    "chatml": _CHATML,
    "minutes_500": _MEETING,
    "long_1500": _LONG,
}

# --- Tokenizer corpus --------------------------------------------------------------------------

_TEXTS = {
    "plain": [
        "",
        "a",
        " ",
        "Hello",
        " Hello",
        "Hello, world!",
        "hello world",
        "  two leading spaces",
        "trailing space ",
        "trailing spaces   ",
        "The quick brown fox jumps over the lazy dog.",
        "UPPER lower MiXeD",
        "snake_case_name",
        "camelCaseName",
        "kebab-case-name",
        "a.b.c",
        "e.g., i.e.; etc.",
        "Wait... what?!",
        "(parentheses) [brackets] {braces}",
        "\"quoted\" 'single' `back`",
        "“curly” ‘single’ «guillemets»",
        "em—dash en–dash hyphen-minus",
        "50% of $100 is €50",
        "mail@example.org",
        "https://example.org/a/b?c=d&e=f#g",
        "C:\\Users\\name\\file.txt",
        "/usr/local/bin",
        "supercalifragilisticexpialidocious",
        "antidisestablishmentarianism " * 3,
        "tokenizer tokenization tokenize",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "abababababababababababab",
    ],
    "contractions": [
        "I'm you're he's she'd we'll they've isn't",
        "I'M YOU'RE HE'S SHE'D WE'LL THEY'VE ISN'T",
        "it's 'twas 'tis rock'n'roll",
        "'s 't 're 've 'm 'll 'd",
        " 's 't 're",
        "don’t can’t won’t",
        "x's y'S z'Ll",
        "'",
        "''",
        "'''",
        "a'",
        "'a",
        "O'Brien's",
        "the dogs' tails",
        "'lll 'ree 'vee",
        "1's 2'd",
    ],
    "digits": [
        "1",
        "12",
        "123",
        "1234",
        "12345",
        "123456",
        "1234567",
        "1234567890123456789012345678901234567890",
        " 1",
        " 12",
        " 123",
        "1 2 3",
        "1,234,567.89",
        "3.14159",
        "-42",
        "+1 (555) 010-9999",
        "0x1F",
        "1e-10",
        "v1.2.3-rc4",
        "2026-04-01T12:34:56Z",
        "a1b2c3",
        "1st 2nd 3rd",
        "٠١٢٣٤٥٦٧٨٩",
        "०१२३",
        "一二三 ①②③ ⅣⅧ ½¾ x²³",
        "１２３",
    ],
    "whitespace": [
        "  ",
        "   ",
        "    ",
        "     ",
        "        ",
        " " * 16,
        " " * 33,
        " " * 200,
        "\n",
        "\n\n",
        "\n\n\n",
        "\n" * 17,
        "\t",
        "\t\t",
        "\t\t\t\t",
        "\t" * 20,
        " \n",
        "\n ",
        " \n ",
        "  \n  \n  ",
        "\n\t\n\t",
        " \t \t ",
        "a\nb",
        "a \nb",
        "a\n b",
        "a  b",
        "a   b",
        "a    b",
        "a\tb",
        "a\t\tb",
        "a \tb",
        "a\n\nb",
        "a\n\n\n  b",
        "a \n \n b",
        "word   \n\n   word\t\t\n word",
        "\r",
        "\r\n",
        "\r\n\r\n",
        "line one\r\nline two\r\n",
        "a\r\n\tb\r\n",
        "\n\r",
        "a\rb",
        "x  \r\n  y",
        "!\n",
        "!!\n\n",
        "a!\r\n b?\n\n\nc",
        ".\n\n\n",
        "? \n",
        "\v",
        "\f",
        "a\vb\fc",
        " \v\f ",
        "  def f(x):\n      return x\n\n\n  def g():\n\tpass\n",
    ],
    "unicode_spaces": [
        "a\u00a0b",
        "\u00a0",
        "\u00a0\u00a0",
        " \u00a0 ",
        "a\u2003b",
        "a\u2009b\u200ac",
        "a\u3000b",
        "\u3000\u3000全角",
        "a\u1680b",
        "a\u202fb",
        "a\u205fb",
        "a\u0085b",
        "a\u2028b",
        "a\u2029b",
        "a\u200bb",
        "a\u200cb\u200dc",
        "\ufeffBOM",
        "a\u2060b",
        "a\u00adb",
        "\u180ea",
        "a\u2003\u2003 b",
        "\u2003\n\u2003x",
    ],
    "latin": [
        "café naïve résumé",
        "cafe\u0301 nai\u0308ve",
        "Übergrößenträger",
        "straße STRASSE ẞ",
        "Ærøskøbing smørrebrød",
        "Łódź żółć",
        "Příliš žluťoučký kůň",
        "ığdır İstanbul",
        "ﬁne ﬂow ﬀ",
        "Ǆ ǅ ǆ",
        "ªº",
        "ˈfəˌnɛtɪk",
        "Việt Nam Tiếng Việt",
        "ñ Ñ ¿qué? ¡sí!",
    ],
    "scripts": [
        "Привет, мир! Съешь ещё этих мягких французских булок",
        "Καλημέρα κόσμε, ὁ ἄνθρωπος",
        "שלום עולם, מה שלומך?",
        "שָׁלוֹם",
        "مرحبا بالعالم، كيف حالك؟",
        "مَرْحَبًا",
        "فارسی: سلام دنیا، نیم‌فاصله",
        "नमस्ते दुनिया, क्षत्रिय",
        "বাংলা ভাষা",
        "தமிழ் மொழி",
        "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง",
        "ພາສາລາວ",
        "မြန်မာ",
        "ខ្មែរ",
        "བོད་ཡིག",
        "ქართული ენა",
        "Հայերեն",
        "አማርኛ",
        "ᏣᎳᎩ",
        "你好，世界！今天天气很好。",
        "漢字とひらがなとカタカナ、ﾊﾝｶｸ。",
        "안녕하세요 세계! 한국어",
        "\u1112\u1161\u11ab\u1100\u1173\u11af",
        "ᚠᚢᚦᚨᚱᚲ",
        "𐍈𐌰𐌹",
        "𝓗𝓮𝓵𝓵𝓸 𝟙𝟚𝟛",
        "𠮷野家 𪚥",
        "混合mixed文字text123数字",
        "٪؟؛",
        "𞤀𞤁",
    ],
    "marks": [
        "e\u0301\u0302\u0303\u0304\u0305",
        "Z\u0351\u036b\u0343a\u0300l\u0323g\u0330o\u0337",
        "\u0301",
        " \u0301",
        "a \u0301b",
        "क्‍ष क्‌ष",
        "1\u0301",
        "!\u0301",
        "\u093f\u0915",
    ],
    "emoji": [
        "😀",
        "😀😃😄",
        " 😀",
        "a😀b",
        "👍🏽👍🏿",
        "👩‍👩‍👧‍👦",
        "🏳️‍🌈 🏴‍☠️",
        "🇩🇪🇫🇷🇯🇵",
        "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
        "❤️ ❤ ☺️ ☺",
        "1️⃣ #️⃣ *️⃣",
        "👨🏽‍💻 writes code",
        "🧑‍🚀🚀🌍",
        "©️ ™ ®",
        "→ ← ⇒ ∑ ∫ √ ≠ ≤",
        "♠♥♦♣ ■□ ░▒▓",
        "🤷🏻‍♀️¯\\_(ツ)_/¯",
        "🫠🪿🩷",
    ],
    "control": [
        "\x00",
        "a\x00b",
        "\x00\x00\x00",
        "\x01\x02\x03",
        "\x04\x06\x13\x14\x16\x1d",
        "bell\x07",
        "back\x08space",
        "\x1b[31mred\x1b[0m",
        "\x7f",
        "\x80\x81\x9f",
        "a\x04b",
        " \x00 ",
        "\x00\n",
    ],
    "unusual": [
        "\ufffd",
        "\ufffe\uffff",
        "\U0010ffff",
        "\ue000\uf8ff",
        "\U000f0000",
        "\u0378",
        "\U00040000\U00080000",
        "\u202eabc\u202c",
        "\u2066x\u2069",
        "Ġ Ċ ĉ Ā",
        "Ġhello",
        "▁hello",
        "<0x0A>",
        "\u00c2\u00a0",
    ],
    "special": [
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<|im_start|>user\nHi<|im_end|>\n",
        "a<|im_end|>b",
        " <|im_end|> ",
        "<|im_start|><|im_start|>",
        "<|im_start|",
        "<|im_start |>",
        "<|IM_START|>",
        "<|im_start|>>",
        "<<|im_start|>",
        "x<|im_start|>y<|im_end|>z<|endoftext|>",
        "<repo_name>a/b<file_sep>c.py\n",
        "<filename>",
        "<|begin_of_text|>Hello<|end_of_text|>",
        "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>",
        "<s>Hi</s>",
        "<unk>",
        "[INST] Hi [/INST]",
        '<tool_call>{"a": 1}</tool_call>',
        "<|pad|>",
        "<|pad|><|pad|>x",
        "<|pad|>>",
        "before   <|pad|>   after",
        "\n<|im_end|>\n\n",
        "a <tool_call> b",
        "say<|unk|>what",
        "1<|im_start|>2",
        "é<|im_end|>é",
        "'<|im_end|>s",
    ],
    "code": [
        'for (int i = 0; i < 10; ++i) {\n\tprintf("%d\\n", i);\n}\n',
        "def f(a, b=1, *args, **kwargs):\n    return a + b  # sum\n",
        "SELECT name, COUNT(*) FROM t WHERE x >= 1.5 GROUP BY name;",
        '<div class="a b">\n  <p>&nbsp;text</p>\n</div>\n',
        '{"key": [1, 2.5, null, true], "s": "\\u00e9\\n"}',
        'if [[ -n "$x" ]]; then\n  echo "${x%%.*}" | sed \'s/a/b/g\'\nfi\n',
        "#include <vector>\n#define MAX(a,b) ((a)>(b)?(a):(b))\n",
        "let mut v: Vec<u8> = vec![0; 16]; // 你好\n",
        "x = a[i][j]->k::m<T&&>(*p);",
        "\\frac{\\partial f}{\\partial x} = \\sum_{i=0}^{n} x_i^2",
        "a=b;c==d;e===f;g!=h;i<=j;k>=l;m<<n;o>>p;q&&r;s||t",
        "----------\n==========\n**********\n##########",
        "................................................................",
        "|  a |  b |\n|----|----|\n|  1 |  2 |\n",
        "    \n        indented\n            more\n    \n",
    ],
}

# Codepoints above U+10FFFF (f4 90 80 80 to f7 bf bf bf) are left out: llama.cpp throws an exception
# that its C interface does not catch, and the process dies.
_BYTES = {
    "truncated_2": b"\xc3",
    "truncated_2_in_text": b"caf\xc3 au lait",
    "truncated_3": b"\xe2\x82",
    "truncated_3_then_ascii": b"\xe2\x82x",
    "truncated_4": b"\xf0\x9f\x98",
    "truncated_4_then_space": b"\xf0\x9f\x98 end",
    "truncated_4_one_byte": b"\xf0",
    "lone_continuation": b"\x80",
    "continuations": b"\x80\xbf\x80",
    "continuation_in_text": b"a\x9fb",
    "overlong_nul": b"\xc0\x80",
    "overlong_slash": b"\xc0\xaf",
    "overlong_a": b"\xc1\x81",
    "overlong_3": b"\xe0\x80\xaf",
    "overlong_3_e_acute": b"\xe0\x83\xa9",
    "overlong_4": b"\xf0\x80\x80\xaf",
    "overlong_4_euro": b"\xf0\x82\x82\xac",
    "surrogate_high": b"\xed\xa0\x80",
    "surrogate_low": b"\xed\xb0\x80",
    "surrogate_pair_cesu8": b"\xed\xa0\xbd\xed\xb8\x80",
    "surrogate_in_text": b"a\xed\xa0\x80b",
    "ff": b"\xff",
    "fe_ff": b"\xfe\xff",
    "ff_in_text": b"abc\xffdef",
    "ff_run": b"\xff\xff\xff\xff",
    "f8": b"\xf8\x88\x80\x80\x80",
    "fc": b"\xfc\x84\x80\x80\x80\x80",
    "latin1": "Grüße aus Köln".encode("latin-1"),
    "utf16_le": "Hi €".encode("utf-16-le"),
    "space_then_invalid": b" \xff",
    "digits_then_invalid": b"12\xff34",
    "newline_then_invalid": b"\n\xc3\n",
    "invalid_before_special": b"\xe2\x82<|im_end|>",
    "good_and_bad": "né".encode() + b"\xc3" + "😀".encode() + b"\xf0\x9f",
    "every_byte": bytes(range(256)),
}


def tokenizer_cases() -> list[tuple[str, bytes]]:
    """Return the corpus: a unique name and the bytes for each case."""
    cases = [
        (f"{group}_{index:02d}", text.encode("utf-8"))
        for group, texts in _TEXTS.items()
        for index, text in enumerate(texts)
    ]
    cases += [(f"prompt_{name}", text.encode("utf-8")) for name, text in PROMPTS.items() if name != "long_1500"]
    cases += [(f"invalid_{name}", data) for name, data in _BYTES.items()]
    cases += _random_cases()
    return cases


def _random_cases() -> list[tuple[str, bytes]]:
    """Return strings drawn from a small alphabet on which pre-tokenizers differ (the seed is fixed)."""
    generator = random.Random(7)
    alphabet = [
        " ",
        " ",
        " ",
        "\n",
        "\n",
        "\t",
        "\r",
        "'",
        "s",
        "ll",
        "T",
        "a",
        "bc",
        "é",
        "好",
        "ไ",
        "\u0301",
        "1",
        "23",
        "٣",
        "!",
        "?",
        ".",
        "-",
        "_",
        "😀",
        "\u00a0",
        "\u3000",
        "\u200b",
        "\x00",
        "<|im_end|>",
        "<|pad|>",
    ]
    return [
        (f"random_{index:02d}", "".join(generator.choices(alphabet, k=generator.randrange(8, 48))).encode("utf-8"))
        for index in range(40)
    ]


# --- Conversations -----------------------------------------------------------------------------

CONVERSATIONS = {
    "user_only": [("user", "Hello!")],
    "system_user": [("system", "You are a pirate."), ("user", "Where is the treasure?")],
    "multi_turn": [
        ("system", "Answer briefly."),
        ("user", "What is 2 + 2?"),
        ("assistant", "4"),
        ("user", "And times 3?"),
        ("assistant", "12"),
        ("user", "Thanks."),
    ],
    "ends_with_assistant": [("user", "Say hi"), ("assistant", "Hi")],
    "whitespace": [
        ("system", "  padded system \n"),
        ("user", "\n\n leading and trailing \t\n"),
        ("assistant", " ok "),
        ("user", ""),
    ],
    "unicode_and_code": [
        ("user", "Erkläre 🙂:\n```cpp\nint x = 1;  // 你好\n```\n"),
        ("assistant", "Gut – fertig."),
        ("user", "مرحبا"),
    ],
    "special_in_content": [("user", "What does <|im_end|> mean? And <|eot_id|>?"), ("assistant", "<|im_start|>")],
    "system_in_the_middle": [("user", "a"), ("system", "b"), ("user", "c")],
    "empty": [],
}

# --- Training text of the little vocabularies --------------------------------------------------

TRAINING_TEXT = "\n".join(
    [
        _PYTHON,
        _CPP,
        _PROSE,
        _GERMAN,
        _FRENCH,
        _CHINESE,
        _ARABIC_HEBREW,
        _JAPANESE_EMOJI,
        _MEETING,
        _log_lines(12),
        "I'm you're he's she'd we'll they've isn't don't can't won't it's that's I'LL IT'S DON'T",
        "Привет, мир! Это простой текст о погоде и о времени. नमस्ते दुनिया สวัสดีชาวโลก Καλημέρα κόσμε",
        "12345 67890 123 456 789 2024 2025 2026 100 200 1000 10000 3.14 0.5 99 77 42",
        "😀😃😄👍🏽👩‍👩‍👧‍👦🇩🇪🇫🇷❤️ a\u00a0b\u3000c\u2003d    e\t\tf\r\n\r\n",
        "if (x) {\n    return y;\n}\n\nfor i in range(10):\n        print(i)\n\n\n",
    ]
)
