"""Masks of grammars against texts, and grammars that would take too much."""

from __future__ import annotations

import itertools
import json
import resource
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex

from engine import processes
from engine.errors import SettingsError
from engine.grammar.source import FORMATS, in_words
from engine.grammar.states import (
    GrammarVocabulary,
    Matcher,
    try_out,
    vocabulary_of,
)
from engine.grammar_settings import LONGEST, Grammar, GrammarKind, choices
from engine.model.load import load
from engine.setting import check
from engine.settings import LoadSettings
from tests.system import python


class PlainVocabulary:
    """Tokens by their bytes.

    Args:
        tokens: Their bytes, by id.
        special: Ids of marks of the format.
        eos_ids: Ids that end the sequence.
    """

    def __init__(
        self, tokens: Sequence[bytes], special: Sequence[int] = (), eos_ids: tuple[int, ...] = ()
    ) -> None:
        self._tokens, self._special, self.eos_ids = tokens, frozenset(special), eos_ids
        self.vocabulary = len(tokens)

    def raw(self, token: int) -> bytes:
        """The token's bytes."""
        return self._tokens[token]

    def is_special(self, token: int) -> bool:
        """Whether it is a mark of the format."""
        return token in self._special


def overlapping() -> PlainVocabulary:
    """All bytes, many texts of several that contain each other, halves of characters, ids without bytes, marks of the
    format whose text is common, and two ends."""
    texts = ["ab", "abc", "abcd", "bc", "bcd", "cd", "aa", "aaa", "00", "12", "123", "2026", "-0", "0-", "{}", '{"',
             '":', '": ', '", "', ', "', "true", "tr", "ue", "false", "null", "yes", "no", "ye", "nope", " ", "  ",
             "\n\n", "a\n", "é", "日", "日本", "本", "👋", "x日", "\\n", '\\"',
             "[1", "1]", "],", "-1", "1.5", "e1"]  # fmt: skip
    pieces = [*(bytes([byte]) for byte in range(256)), *(text.encode() for text in texts)]
    pieces += [
        "é".encode()[:1] + b"",
        "日".encode()[:2],
        "日".encode()[1:],
        b"a" + "日".encode()[:1],
        b"\xff\xfe",
    ]
    first = len(pieces)
    pieces += [b"", b"", b"<|end|>", b"<|stop|>", b"ab", b"<|tool|>"]
    return PlainVocabulary(
        pieces, special=(first + 2, first + 3, first + 4, first + 5), eos_ids=(first + 2, first + 3)
    )


Judge = Callable[[bytes], bool]
"""Whether some text of the grammar begins with these bytes."""
CHARACTER = (
    rb"(?:[\x00-\x09\x0b-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    rb"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})"
)
"""What `.` matches, in UTF-8."""
REGEXES = (
    "[0-9]+",
    "abcd",
    "(ab|abc|abcd)*d?",
    "[a-c]{2,5}(aa)+",
    "(a|b)*a(a|b){6}",
    r"\{\}|\[1(,-1)*\]",
    "-?(0|[1-9][0-9]*)(.[0-9]+)?",
    "20[0-9]{2}-(0[1-9]|1[0-2])-[0-3][0-9]",
    "(yes|no|nope)(, (yes|no|nope))*",
    "a?",
    "(日本|日|é)+x?日?",
    "a.c|.{2}日",
    "(\n|a\n)+b",
    "((a*)*)*b",
    "👋{1,2}",
)


@cache
def vocabulary(name: str) -> tuple[Any, GrammarVocabulary]:
    tokens: Any = overlapping() if name == "overlapping" else load(LoadSettings()).tokens
    return tokens, vocabulary_of(tokens)


def by_regex(pattern: str) -> tuple[Judge, Judge]:
    """Whether a text can be continued to a match, and whether it is one: `regex`, over UTF-8."""
    raw = regex.sub(rb"[^\x00-\x7f]", rb"\g<0>", pattern.encode())
    for char in {
        char for char in pattern if ord(char) > 127
    }:  # what follows a character binds to all its bytes
        raw = raw.replace(char.encode(), b"(?:" + char.encode() + b")")
    raw = regex.sub(rb"(?<!\\)\.", lambda _: CHARACTER, raw)
    compiled = regex.compile(raw)
    return (
        lambda text: compiled.fullmatch(text, partial=True) is not None,
        lambda text: compiled.fullmatch(text) is not None,
    )


def of_texts(texts: Iterable[str]) -> tuple[Judge, Judge]:
    """The same of a grammar whose texts are known."""
    whole = {text.encode() for text in texts}
    beginnings = {text[:end] for text in whole for end in range(len(text) + 1)}
    return beginnings.__contains__, whole.__contains__


def spaced(parts: Iterable[str]) -> set[str]:
    """JSON's parts with one space or none between two."""
    first, *rest = parts
    gaps = itertools.product(("", " "), repeat=len(rest))
    return {first + "".join(gap + part for gap, part in zip(each, rest, strict=True)) for each in gaps}


BOOLEANS = ("true", "false")
SCHEMAS: tuple[tuple[object, set[str]], ...] = (
    ({"type": "boolean"}, {"true", "false"}),
    ({"enum": ["yes", "no", "nope", 12, None, [1]]},
     {'"yes"', '"no"', '"nope"', "12", "null", *spaced(["[", "1", "]"])}),
    ({"type": "integer", "minimum": -1, "maximum": 123}, {str(number) for number in range(-1, 124)} | {"-0"}),
    ({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False},
     {text for value in BOOLEANS for text in spaced(["{", '"a"', ":", value, "}"])}),
    ({"type": "object", "properties": {"a": {"const": 1}, "bc": {"type": "null"}}, "additionalProperties": False},
     spaced("{}") | spaced(["{", '"a"', ":", "1", "}"]) | spaced(["{", '"bc"', ":", "null", "}"])
     | spaced(["{", '"a"', ":", "1", ",", '"bc"', ":", "null", "}"])),
    ({"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
     spaced("[]") | {text for one in BOOLEANS for text in spaced(["[", one, "]"])}
     | {text for one in BOOLEANS for other in BOOLEANS for text in spaced(["[", one, ",", other, "]"])}),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"anyOf": [{"const": "ab"}, {"const": "abc"}]}}}, {'"ab"', '"abc"'}),
    ({"type": "string", "pattern": "^(ab|cd){1,2}$"},
     {f'"{"".join(each)}"' for count in (1, 2) for each in itertools.product(("ab", "cd"), repeat=count)}),
)  # fmt: skip
CASES: dict[str, tuple[Grammar, tuple[Judge, Judge]]] = {
    **{f"regex {text}": (Grammar("regex", text), by_regex(text)) for text in REGEXES},
    **{
        f"schema {place}": (Grammar("json-schema", json.dumps(schema)), of_texts(texts))
        for place, (schema, texts) in enumerate(SCHEMAS)
    },
    "choices": (
        Grammar("choices", 'yes\nno\nnope\nabc\nab"\\日'),
        of_texts(["yes", "no", "nope", "abc", 'ab"\\日']),
    ),
    "lark": (Grammar("lark", 'start: "ab"~1..3 end?\nend: "cd" | "日"'), by_regex("(ab){1,3}(cd|日)?")),
    "gbnf": (Grammar("gbnf", 'root ::= "ab" x*\nx ::= [0-2]+ "-"'), by_regex("ab([0-2]+-)*")),
    "gbnf, a beginning of what follows": (Grammar("gbnf", 'root ::= [a-d]+ "ab"'), by_regex("[a-d]+ab")),
    "gbnf, a rule in itself": (
        Grammar("gbnf", 'root ::= x root | x end?\nx ::= "a" | "ab" | "日"\nend ::= "cd" | "c"'),
        by_regex("(a|ab|日)+(cd|c)?"),
    ),
    "no forcing taken off": (
        Grammar("lark", '%llguidance {"no_forcing": false}\nstart: "abcd"'),
        of_texts(["abcd"]),
    ),
}


@pytest.mark.wide(6)
@pytest.mark.parametrize("words", ["overlapping", "bundled"])
@pytest.mark.parametrize("case", CASES)
def test_a_token_is_allowed_where_a_text_of_the_grammar_goes_on_with_it(case: str, words: str) -> None:
    grammar, (begins, matches) = CASES[case]
    tokens, prepared = vocabulary(words)
    text_tokens = {
        token: raw
        for token in range(tokens.vocabulary)
        if (raw := tokens.raw(token)) and not tokens.is_special(token) and token not in tokens.eos_ids
    }
    first = Matcher.begin(grammar, prepared)
    random = np.random.default_rng(7)
    for _ in range(4):
        matcher, text = first.copy(), b""
        for _ in range(12):
            expected = {token for token, raw in text_tokens.items() if begins(text + raw)}
            ends = set(tokens.eos_ids) if matches(text) else set()
            assert set(matcher.allowed_ids()) == expected | ends, text
            assert matcher.accepting == bool(ends), text
            assert matcher.complete == (bool(ends) and not expected), text
            forced = matcher.forced()
            assert begins(text + forced), text
            assert all(matcher.allows(token) == matches(text) for token in tokens.eos_ids), text
            assert not any(matcher.allows(token) for token in random.choice(tokens.vocabulary, 5)
                           if token not in expected | ends), text  # fmt: skip
            if not expected:
                break
            assert all(matcher.allows(token) for token in random.choice(sorted(expected), 3)), text
            token = int(random.choice(sorted(expected)))
            matcher.take(token)
            text += text_tokens[token]


@pytest.mark.parametrize("kind", ["regex", "choices", "lark", "gbnf", "json-schema"])
def test_of_a_text_that_is_certain_every_beginning_is_a_token_that_may_follow(kind: GrammarKind) -> None:
    text = {"regex": "ily", "choices": "ily", "lark": 'start: "ily"', "gbnf": 'root ::= "ily"'}.get(
        kind, '{"const": "ily"}'
    )
    tokens, prepared = vocabulary("bundled")
    matcher = Matcher.begin(Grammar(kind, text), prepared)
    whole = b'"ily"' if kind == "json-schema" else b"ily"
    assert matcher.forced() == whole
    allowed = {tokens.raw(token) for token in matcher.allowed_ids()}
    assert allowed == {tokens.raw(token) for token in range(4096) if tokens.raw(token)} & {
        whole[:end] for end in range(1, len(whole) + 1)
    }


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("lark", "2(3): expecting rule", "line 2, column 3: expecting rule"),
        ("lark", "at 2(3): lexer error", "line 2, column 3: a text or pattern doesn't end, or a sign is out of place"),
        ("lark", "expecting rule\n(more)", "expecting rule"),
        ("json-schema", "2(3): expecting rule", "expecting rule"),
        ("regex", "1(2): x\nerror: unclosed group\n    a(\n     ^", "column 2: unclosed group"),
        ("regex", "1(2): x\nerror: unclosed group", "unclosed group"),
        ("lark", "1(2): x\nerror: unclosed group\n    a(\n     ^", "line 1, column 2: unclosed group"),
        ("choices", "2(3): too big (limit: 3)", "it is too large"),
        ("json-schema", "failed to compile JSON schema: " + "x" * 300, "x" * 200),
        ("regex", "", "llguidance gives no reason"),
        ("json-schema", 'Unimplemented keys: ["not", "if"]', "keywords of the schema that are not supported: not, if"),
        ("json-schema", "Unknown format: x", f"llguidance doesn't know the format x. It knows {FORMATS}"),
        ("json-schema", "Resource 'https://a/s' is not present in a registry",
         "$ref to https://a/s: only references within the schema are followed"),
    ],
)  # fmt: skip
def test_errors_of_llguidance_in_words(kind: GrammarKind, error: str, words: str) -> None:
    assert in_words(error, Grammar(kind, "a")) == words


# ---- hostile ones ------------------------------------------------------------------------------

CPU_SECONDS = 4
"""Of a trial at most: two and the imports."""


def nested(depth: int) -> str:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return json.dumps(schema)


def chain(begin: str, sign: str) -> str:
    return begin + "".join(f'r{n}{sign} "a" r{n + 1}\n' for n in range(20_000)) + f'r20000{sign} "b"\n'


REFUSED: dict[str, tuple[GrammarKind, str, str]] = {
    "unclosed": ("regex", "ab[0-9", "column 3: unclosed character class"),
    "look-ahead": ("regex", "a(?=b)", "column 2: look-around"),
    "backreference": ("regex", r"(a)\1", "column 4: backreferences are not supported"),
    "a border of words": ("regex", r"\bfoo", "lookarounds not supported"),
    "bytes that are no text": ("regex", r"(?-u:\xff)", "pattern can match invalid UTF-8"),
    "5,000 parentheses": ("regex", "(" * 5000 + "a" + ")" * 5000, "nested parentheses"),
    "nothing matches": ("regex", r"[^\s\S]", "no text matches it"),
    "JSON 200 deep": ("json-schema", nested(200), "it is nested too deeply"),
    "brackets": ("json-schema", "[" * 100_000, "it is nested too deeply"),
    "no JSON": ("json-schema", '{"type": "object",\n "x" 1}', "line 2, column 6: Expecting ':' delimiter"),
    "no schema": ("json-schema", "3", "a JSON schema is an object"),
    "a loop of references": ("json-schema", '{"$ref": "#"}', "no text matches it"),
    "a schema elsewhere": ("json-schema", '{"$ref": "https://a.example/s"}', "$ref to https://a.example/s: only"),
    "keywords": ("json-schema", '{"not": {}, "if": {}}', "keywords of the schema that are not supported: "),
    "a format": ("json-schema", '{"type": "string", "format": "x"}', "doesn't know the format x. It knows date, "),
    "a contradiction": ("json-schema", '{"type": "integer", "minimum": 5, "maximum": 1}', "minimum (5) is greater"),
    "a pattern": ("json-schema", '{"type": "string", "pattern": "[0-9"}', "unclosed character class"),
    "a number of 401 digits": ("json-schema", '{"type": "integer", "minimum": 1' + "0" * 400 + "}", "of 401 digits"),
    "a minimum of 401 digits": ("json-schema", '{"minLength": 1' + "0" * 400 + "}", "a number in it is beyond what"),
    "no number": ("json-schema", '{"type": "number", "exclusiveMinimum": NaN}', "NaN is no number of JSON"),
    "a draft": ("json-schema", '{"$schema": "http://x/y", "type": "z"}', "doesn't know its $schema http://x/y. Name"),
    "20,000 rules of Lark": ("lark", chain("start: r0\n", ":"), "it is nested too deeply"),
    "20,000 rules of GBNF": ("gbnf", chain("root ::= r0\n", " ::="), "it is nested too deeply"),
    "120,000 choices": ("choices", "\n".join(f"w{n}" for n in range(120_000)), "it takes too much"),
    "a rule that needs itself": ("lark", "start: start", "no text matches it"),
    "Lark": ("lark", 'start: "a" |\n  ) foo', "line 2, column 3: expecting rule, token or statement"),
    "a text without its end": ("lark", 'start: x\nx: "a', "line 2, column 6: a text or pattern doesn't end"),
    "NUL": ("lark", 'start: "a\0b"', "line 1, column 10: a text or pattern doesn't end"),
    "a rule that is missing": ("lark", "start: foo", 'line 1, column 8: unknown name: "foo"'),
    "no start": ("lark", 'foo: "a"', "it has no rule named start"),
    "no rule": ("lark", "// nothing", "it has no rule"),
    "a file of rules": ("lark", "%import .rules.x\nstart: x", "line 1, column 1: Unknown common regex"),
    "GBNF": ("gbnf", 'root ::= "a"\nx :: "b"', "line 2, column 3: expected ::="),
    "GBNF without a root": ("gbnf", 'foo ::= "a"', "it has no rule root"),
}  # fmt: skip
TAKEN: dict[str, tuple[GrammarKind, str]] = {
    "a million": ("regex", "(a{1000}){1000}"),
    "ambiguous": ("lark", 'start: s\ns: s s s | s s | "a" | "a" "a" | '),
    "endless": ("lark", 'start: "a" start'),
    "exponential": ("regex", "(a|b)*a(a|b){30}"),
    "stars": ("regex", "((a*)*)*b"),
    "a megabyte": ("regex", "abc" * 300_000),
    "NUL": ("regex", "a\0b"),
    "escapes that are no UTF-8": ("lark", r'start: "\xff\xfe"'),
    "long arrays": ("json-schema", '{"type": "array", "items": {"type": "integer"}, "minItems": 1000000}'),
    "20,000 values": ("json-schema", json.dumps({"enum": [f"v{n}" for n in range(20_000)]})),
    "own directives": ("lark", '%llguidance {"no_forcing": false}\nstart: "abc"'),
}
QUICK = {"unclosed", "a number of 401 digits", "keywords", "a file of rules", "a million"}
"""A trial takes a process: the others are tried where slow tests are."""


def cases(names: list[str]) -> list[object]:
    return [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in names]


def processor_seconds() -> float:
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize("name", cases([*REFUSED]))
def test_what_cannot_be_used_is_refused_in_bounded_time(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    kind, text, why = REFUSED[name]
    begun = processor_seconds()
    with pytest.raises(SettingsError) as refused:
        try_out(Grammar(kind, text))
    assert why in refused.value.message
    assert refused.value.message.startswith("The grammar can't be used: ")
    assert "\n" not in refused.value.message
    assert len(refused.value.message) < 300
    assert processor_seconds() - begun < CPU_SECONDS
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize("name", cases([*TAKEN]))
def test_what_looks_bad_and_is_not_is_taken(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    begun = processor_seconds()
    try_out(Grammar(*TAKEN[name]))
    assert processor_seconds() - begun < CPU_SECONDS
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_no_schema_is_read_from_a_file(tmp_path: Path, form: str) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"type": "integer"}', encoding="utf-8")
    with pytest.raises(SettingsError, match="can't be used"):
        try_out(Grammar("json-schema", json.dumps({"$ref": form.format(path)})))


def test_nothing_is_written_where_the_screen_is() -> None:
    """In the process that generates, too, where a grammar passed its trial and a step of it becomes too complex."""
    code = (
        "from engine.errors import EngineError\n"
        "from engine.grammar.states import Matcher, byte_vocabulary\n"
        "from engine.grammar_settings import Grammar\n"
        f"for kind, text in {[given[:2] for given in REFUSED.values() if len(given[1]) < 200_000]!r}:\n"
        "    try:\n"
        "        matcher = Matcher.begin(Grammar(kind, text), byte_vocabulary())\n"
        "        while ids := matcher.allowed_ids(): matcher.take(ids[0]); raise_at = matcher.forced()\n"
        "    except EngineError: pass\n"
    )
    done = python(code, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        (Grammar("regex", ""), "the regex grammar is empty"),
        (Grammar("lark", " \n"), "the lark grammar is empty"),
        (Grammar("choices", "\n\n"), "the choices grammar is empty"),
        (Grammar("regex", "\ud800"), "not valid Unicode at character 0"),
        (Grammar("regex", "a" * (LONGEST + 1)), "1,048,577 characters; at most 1,048,576 are allowed"),
        (Grammar("regex", "a", begin=-1), "begins at token -1"),
    ],
)
def test_what_is_no_grammar_is_refused_before_a_trial(grammar: Grammar, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        check(grammar)


def test_choices_are_texts_of_one_line() -> None:
    assert choices(("yes", "no")) == Grammar("choices", "yes\nno")
    with pytest.raises(SettingsError, match="has a line break"):
        choices(("a\nb",))
    with pytest.raises(SettingsError, match="choices name no text"):
        choices(("",))


@pytest.mark.usefixtures("own_process")
def test_a_trial_without_an_answer_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that got no processor time in time says nothing of the grammar."""
    grammar = Grammar("regex", "[0-9]{3}-nobody asked before")
    monkeypatch.setattr(processes, "PATIENCE", 0.001)
    with pytest.raises(SettingsError, match="Try again when the machine is less busy"):
        try_out(grammar)
    monkeypatch.undo()
    try_out(grammar)
