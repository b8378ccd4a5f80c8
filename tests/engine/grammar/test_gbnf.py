"""GBNF as llama.cpp reads it: texts that a grammar takes, and what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import SettingsError
from engine.grammar.states import Matcher, byte_vocabulary
from engine.grammar_settings import Grammar

BYTES = byte_vocabulary()


def takes(first: Matcher, text: str) -> bool:
    """Whether a grammar takes a whole text."""
    matcher = first.copy()
    for byte in text.encode():
        if not matcher.allows(byte):
            return False
        matcher.take(byte)
    return matcher.accepting


def of(text: str) -> Matcher:
    return Matcher.begin(Grammar("gbnf", text), BYTES)


READ: dict[str, tuple[str, str, str]] = {
    "escapes with zeros": (r'root ::= [\u0430-\u044f] "\u00e9" "\U0001F534" "\x41"', "жé🔴A", "1é🔴A"),
    "a rule named start": ('root ::= start\nstart ::= "a"', "a", "b"),
    "names that differ in case, - and _": (
        'root ::= aB ab a-b a_b\naB ::= "1"\nab ::= "2"\na-b ::= "3"\na_b ::= "4"', "1234", "1134",
    ),
    "repetitions of repetitions": ('root ::= ("a"{2}){2} ("b"*)* "c"{1,2}{2}', "aaaabbccc", "aab"),
    "numbers of nine digits": ('root ::= "a"{000000001,000000002}', "aa", "aaa"),
    "none": ('root ::= "b" "a"{0} "c"{0,0}', "b", "ba"),
    "a text is repeated as a whole": ('root ::= "ab"+ "c"{,}'.replace("{,}", "{1,}"), "ababcc", "abb"),
    "a byte order mark": ('\ufeffroot ::= "a"', "a", "b"),
    "signs that are operators elsewhere": ("root ::= [a~~b]{3} [a-c--]{3} [&|&&]{3}", "~a~-b-&|&", "aaabbb|~|"),
    "brackets in a class": (r"root ::= [[\]/^]{4}", "[]/^", "a"),
    "a class of all others": (r'root ::= [^a\n-]{2} "x"', "b~x", "-bx"),
    "any character": ("root ::= ..", "\n🔴", "a"),
    "a beginning of the next text": ('root ::= [a-z]+ "xy"', "axyaxy", "axya"),
    "in a rule that contains itself": ('root ::= "(" root ")" | [a-z]+ "end"', "((aendend))", "(end)"),
    "lines and comments": (
        'root ::= # the root\n  "a" | # or\n  ( "b"\n | "c" # or\n )\r\n\n# more\nx ::= "d"\n', "c", "d",
    ),
    "an empty choice": ('root ::= "a" ("b" | )', "a", "b"),
    "left recursion": ('root ::= root "," [0-9] | [0-9]', "1,2,3", "1,"),
    "the last of two rules": ('root ::= "a"\nroot ::= "b"', "b", "a"),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_a_text_is_taken_where_llama_cpp_takes_it(case: str) -> None:
    text, taken, other = READ[case]
    assert takes(of(text), taken)
    assert not takes(of(text), other)


WRONG = {
    "": "it has no rule root",
    'foo ::= "a"': "it has no rule root",
    "root ::= foo": "line 1, column 10: there is no rule foo",
    'root ::= "a"\nx :: "b"': "line 2, column 3: expected ::=",
    'root ::= "a" x ::= "b"': "line 1, column 16: expected a part of a rule, or a line break",
    'root ::= "a")': "line 1, column 13: expected a part of a rule, or a line break",
    'root ::= ("a"': "line 1, column 14: expected )",
    'root ::= "a': "line 1, column 12: a text or class doesn't end",
    "root ::= []": "line 1, column 10: the class has no characters",
    "root ::= [b-a]": "line 1, column 10: the range from U+0062 to U+0061 is out of order",
    r'root ::= "\q"': r"line 1, column 11: \q is no escape",
    r'root ::= "\u12"': r'line 1, column 11: \u12" is no escape',
    r'root ::= "\ud83d"': r"line 1, column 11: \ud83d is no character",
    'root ::= "a"{,2}': "line 1, column 14: expected a number",
    'root ::= "a"{' + "9" * 5000 + "}": "a repetition has a number of 5000 digits",
    'root ::= "a"{3,2}': "line 1, column 13: {3,2} is out of order",
    "root ::= " + "(" * 5000 + '"a"' + ")" * 5000: "it is nested too deeply",
    'root ::= "a" <[14]>': "line 1, column 14: <[14]> names a token, and a grammar here matches text: write the text",
    "root ::= !<[14]>": "!<[14]> names a token",
    "root ::= <|im_end|>": "<|im_end|> names a token",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_read_is_said_with_its_place(text: str) -> None:
    with pytest.raises(SettingsError) as refused:
        of(text)
    assert WRONG[text] in refused.value.message


@pytest.mark.parametrize(
    "text", ['start: "a" <[14]>', "start: <|im_end|>", 'start: "<b>" /<[a-z]>/ <c> // <d>']
)
def test_tokens_in_lark_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="names a token"):
        Matcher.begin(Grammar("lark", text), BYTES)
    Matcher.begin(Grammar("lark", 'start: "<b>\\"<b>" /<[a-z]>\\/<x>/ // <d>'), BYTES)
    Matcher.begin(Grammar("lark", 'start: "<b>"  # <one> of two'), BYTES)


# ---- random grammars, against Python's regular expressions ------------------------------------

CHARS = 'ab~-&|[]^\\/".{}n\n é'


def escaped(char: str, code: bool) -> str:
    return (
        f"\\U{ord(char):08x}" if code else {"\n": "\\n"}.get(char, f"\\{char}" if char in '"\\[]' else char)
    )


def literal(chars: str, code: bool) -> tuple[str, str]:
    return '"' + "".join(escaped(char, code) for char in chars) + '"', f"(?:{re.escape(chars)})"


def group(chars: str, negated: bool, code: bool) -> tuple[str, str]:
    inner = "".join(escaped(char, code or char in "-^") for char in chars)
    sign = "^" * negated
    return f"[{sign}{inner}]", f"[{sign}{''.join(escaped(char, True) for char in chars)}]"


Pair = tuple[str, str]
ATOMS: st.SearchStrategy[Pair] = st.one_of(
    st.builds(literal, st.text(CHARS, max_size=3), st.booleans()),
    st.builds(group, st.text(CHARS, min_size=1, max_size=4), st.booleans(), st.booleans()),
    st.just((".", "(?s:.)")),
)


def repeated(part: Pair, times: str) -> Pair:
    return f"({part[0]}){times}", f"(?:{part[1]}){times}"


EXPRESSIONS: st.SearchStrategy[Pair] = st.recursive(
    ATOMS,
    lambda part: st.one_of(
        st.lists(part, min_size=1, max_size=3).map(
            lambda parts: (" ".join(each for each, _ in parts), "".join(each for _, each in parts))
        ),
        st.lists(part, min_size=2, max_size=3).map(
            lambda parts: (
                f"({'|'.join(each for each, _ in parts)})",
                f"(?:{'|'.join(each for _, each in parts)})",
            )
        ),
        st.builds(repeated, part, st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])),
    ),
    max_leaves=6,
)


@given(EXPRESSIONS, st.lists(st.text(CHARS, max_size=6), min_size=6, max_size=6), st.data())
@settings(deadline=None)
def test_it_takes_what_the_same_regular_expression_takes(
    pair: Pair, texts: list[str], data: st.DataObject
) -> None:
    gbnf, expression = pair
    texts.append(data.draw(st.from_regex(expression, fullmatch=True, alphabet=st.sampled_from(CHARS))))
    plain, within = of(f"root ::= {gbnf}"), of(f'root ::= part | "\U0010ffff" root\npart ::= {gbnf}')
    for text in texts:
        fits = re.fullmatch(expression, text) is not None
        assert takes(plain, text) == fits, (gbnf, text)
        assert takes(within, text) == fits, (gbnf, text)
