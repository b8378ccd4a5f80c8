"""Segments of replies: live labels are those of the whole text, and these are mlx_lm's own split of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mlx_lm.generate import TextStateMachine, make_text_state_machine

from engine.model.chat_template import PARSERS, CallError, parse_call
from engine.protocol import ReplyFormat, ReplyMark, SegmentKind
from engine.segments import ReplyReader, ReplyState, ReplyToken, kind_of, last_call
from tests import templates

JSON_CALL = '\n{"name": "zeta", "arguments": {"city": "Callword"}}\n'
XML_CALL = "\n<function=zeta>\n<parameter=city>\nCallword\n</parameter>\n</function>\n"
REPLIES = {
    "qwen3": ("<think>\nI weigh <b it.\n</think>\n\nFine. ", "<tool_call>", JSON_CALL, "</tool_call>", " Bye"),
    "qwen3_coder": ("Fine. 1 < 2 ", "<tool_call>", XML_CALL, "</tool_call>", ""),
    "glm46": ("\n<think>I weigh it.</think>\nFine.\n", "<tool_call>",
              "zeta\n<arg_key>city</arg_key>\n<arg_value>Callword</arg_value>\n", "</tool_call>", ""),
    "kimi_k2": ("Fine.", "<|tool_calls_section_begin|>",
                '<|tool_call_begin|>functions.zeta:0<|tool_call_argument_begin|>{"city": "Callword"}<|tool_call_end|>',
                "<|tool_calls_section_end|>", ""),
    "mistral_nemo": ("Fine. [T] ", "[TOOL_CALLS]", '[{"name": "zeta", "arguments": {"city": "Callword"}}]', "", ""),
    "mistral_small32": ("Fine.", "[TOOL_CALLS]", 'zeta[ARGS]{"city": "Callword"}', "", ""),
}  # fmt: skip
"""What is said before a call, its mark, the call, the mark of its end, and what follows: where mlx_lm parses calls."""
OWN = {
    "gpt_oss": (
        "markup",
        "<|channel|>analysis<|message|>I weigh it.<|end|><|start|>assistant<|channel|>commentary to=functions.zeta "
        '<|constrain|>json<|message|>{"city": 1}<|call|>',
        [("thinking", "I weigh it."), ("tool call", 'functions.zeta <|constrain|>json{"city": 1}')],
    ),
    "gpt_oss final": (
        "markup",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Fine.<|return|>",
        [("thinking", "Hm."), ("answer", "Fine.")],
    ),
    "deepseek_v31": (
        "thinking",
        'Hm.</think>Fine.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>zeta<｜tool▁sep｜>{"city": 1}<｜tool▁call▁end｜>'
        "<｜tool▁calls▁end｜>",
        [("thinking", "Hm."), ("answer", "Fine."),
         ("tool call", '<｜tool▁call▁begin｜>zeta<｜tool▁sep｜>{"city": 1}<｜tool▁call▁end｜>')],
    ),
    "llama31": ("answer", "<|python_tag|>zeta.call(city=1)", [("tool call", "zeta.call(city=1)")]),
    "seed_oss": (
        "answer",
        f"<seed:think>Hm.</seed:think>Fine.<seed:tool_call>{XML_CALL}</seed:tool_call>",
        [("thinking", "Hm."), ("answer", "Fine."), ("tool call", XML_CALL)],
    ),
    "gemma3": ("answer", "Fine <think> so.", [("answer", "Fine <think> so.")]),
}  # fmt: skip
"""State at the begin, a reply, and whose its text is: of families whose marks mlx_lm doesn't know."""


def format_of(name: str, begin: str = "answer") -> ReplyFormat:
    known = templates.tokens(name).reply_format()
    return ReplyFormat(begin, known.marks, known.parser)


def by_mlx_lm(name: str, text: str, begin: str) -> tuple[str, str, list[str]]:
    """Answer, thinking and tool calls, as its server collects them."""
    machine = make_text_state_machine(templates.wrapper(name))
    state, segments = TextStateMachine.split(machine.make_state(begin), text)
    _, rest, last = TextStateMachine.flush(state)
    answer = thinking = call = ""
    calls, before = [], begin
    for now, part in [*segments, (last, rest)]:
        if now == "reasoning":
            thinking += part
        elif now == "tool":
            call += part
        else:
            if before == "tool":
                calls.append(call)
                call = ""
            answer += part
        before = now
    return answer, thinking, [*calls, *([call] if call else [])]


def by_us(format: ReplyFormat, text: str) -> tuple[str, str, list[str]]:
    parts = ReplyReader(format).split(text)
    told = {
        kind: "".join(text[a:b] for state, a, b in parts if state == kind) for kind in ("answer", "thinking")
    }
    return told["answer"], told["thinking"], [text[a:b] for state, a, b in parts if state == "tool call"]


def read(format: ReplyFormat, tokens: Sequence[ReplyToken]) -> tuple[list[SegmentKind], int]:
    """Kinds of all tokens as they are at the end, and how many were provisional at most."""
    reader, most = ReplyReader(format), 0
    at: ReplyState = reader.begin
    kinds: list[SegmentKind] = []
    for token in tokens:
        at = reader.advance(at, token)
        kinds.append(at.kind)
        for back, kind in at.settled:
            kinds[-1 - back] = kind
        most = max(most, at.provisional)
    return kinds, most


def cut(text: str, seed: int) -> list[str]:
    chance = random.Random(seed)
    pieces = []
    while text:
        length = chance.choice((1, 1, 2, 3, 5, 8))
        pieces.append(text[:length])
        text = text[length:]
    return pieces


# ---- one token ----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["answer", "thinking", "tool call"])
def test_a_mark_and_an_end_are_markup_but_a_mark_in_a_call_is_of_the_call(state: SegmentKind) -> None:
    assert kind_of(state, ReplyToken("x")) == state
    assert kind_of(state, ReplyToken("x", ends=True)) == kind_of("another") == "markup"
    assert kind_of(state, ReplyToken("x", special=True)) == (
        "tool call" if state == "tool call" else "markup"
    )


# ---- against mlx_lm -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", REPLIES)
def test_a_whole_reply_is_split_as_mlx_lm_splits_it(name: str) -> None:
    text = "".join(REPLIES[name])
    assert by_us(format_of(name), text) == by_mlx_lm(name, text, "normal")


@pytest.mark.parametrize("name", REPLIES)
def test_a_call_is_parsed_as_mlx_lm_parses_it(name: str) -> None:
    before, opens, call, closes, _ = REPLIES[name]
    format = format_of(name)
    found = last_call(format, [ReplyToken(each) for each in cut(before + opens + call + closes, 3)])
    assert found == (call, len(before + opens))
    theirs = templates.wrapper(name).tool_parser(call, [templates.WEATHER])
    names = [each["name"] for each in (theirs if isinstance(theirs, list) else [theirs])]
    assert [*parse_call(format.parser, call, [templates.WEATHER])] == names == ["zeta"]


MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|tool_calls_section_begin|>", "[TOOL_CALLS]",
         "<|tool_calls_section_end|>", "<", "</", "<t", "<tool", "[", "|>", "a", " ", "\n", "word ", "é")  # fmt: skip
TEXTS = st.lists(st.sampled_from(MARKS), max_size=12).map("".join)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([*REPLIES]), TEXTS, st.booleans())
def test_any_text_is_split_as_mlx_lm_splits_it(name: str, text: str, thinks: bool) -> None:
    format = format_of(name, "thinking" if thinks else "answer")
    begin = "reasoning" if thinks else "normal"
    if thinks and not any(mark.at == "thinking" for mark in format.marks):
        return
    answer, thinking, calls = by_mlx_lm(name, text, begin)
    assert by_us(format, text)[:2] == (answer, thinking)
    assert "".join(by_us(format, text)[2]) == "".join(calls)


# ---- live, and at the end -----------------------------------------------------------------------


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([*REPLIES, *OWN]), TEXTS, st.integers(0, 10**6))
def test_live_labels_are_those_of_the_whole_text(name: str, more: str, seed: int) -> None:
    """However the text is cut into tokens: each has the kind of its first character that is no space."""
    begin, said = ("answer", "".join(REPLIES[name])) if name in REPLIES else OWN[name][:2]
    text = said[: seed % (len(said) + 1)] + more + said
    format = format_of(name.partition(" ")[0], begin)
    whole = ["markup"] * len(text)
    for state, first, end in ReplyReader(format).split(text):
        whole[first:end] = [kind_of(state)] * (end - first)
    pieces, at = cut(text, seed), 0
    kinds, most = read(format, [ReplyToken(each) for each in pieces])
    for place, piece in enumerate(pieces):
        sign = at + len(piece) - len(piece.lstrip() or piece)
        assert kinds[place] == whole[sign], (text, place)
        at += len(piece)
    assert most <= max((len(mark.text) for mark in format.marks), default=1) - 1


@pytest.mark.parametrize("name", OWN)
def test_marks_that_mlx_lm_does_not_know(name: str) -> None:
    begin, text, wanted = OWN[name]
    format = format_of(name.partition(" ")[0], begin)
    found: list[tuple[str, str]] = []
    for state, first, end in ReplyReader(format).split(text):
        kind = kind_of(state)
        if kind == "markup":
            continue
        if found and found[-1][0] == kind:
            found[-1] = kind, found[-1][1] + text[first:end]
        else:
            found.append((kind, text[first:end]))
    assert found == wanted


@pytest.mark.parametrize("name", [*REPLIES, *OWN])
def test_with_the_familys_own_tokens_at_most_a_few_are_provisional(name: str) -> None:
    begin, text = ("answer", "".join(REPLIES[name])) if name in REPLIES else OWN[name][:2]
    family = name.partition(" ")[0]
    tokens, pending, made = templates.tokens(family), b"", []
    for token in tokens.encode(text, bare=True):
        shown, pending = tokens.text(token, pending)
        made.append(ReplyToken(shown, tokens.is_special(token)))
    _, most = read(format_of(family, begin), made)
    assert most <= 4


def test_special_tokens_are_markup_but_those_that_calls_are_made_of() -> None:
    format = format_of("kimi_k2")
    texts = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "f", "<|tool_calls_section_end|>")
    tokens = [ReplyToken("a"), *(ReplyToken(text, len(text) > 1) for text in texts)]
    tokens.append(ReplyToken("<|im_end|>", True, True))
    assert read(format, tokens)[0] == ["answer", "markup", "tool call", "tool call", "markup", "markup"]
    call = [ReplyToken("[TOOL_CALLS]", True), ReplyToken("[]"), ReplyToken("</s>", True, True)]
    assert read(format_of("mistral_nemo"), call)[0] == ["markup", "tool call", "markup"]
    assert last_call(format_of("mistral_nemo"), call) == ("[]", len("[TOOL_CALLS]"))


def test_branches_share_a_state() -> None:
    """What the next token decides on one branch is undecided on the other."""
    reader = ReplyReader(format_of("qwen3"))
    fork = reader.advance(reader.begin, ReplyToken("<th"))
    assert (fork.kind, fork.provisional) == ("answer", 1)
    mark, text = reader.advance(fork, ReplyToken("ink>")), reader.advance(fork, ReplyToken("at"))
    assert (mark.settled, mark.kind, mark.state) == (((1, "markup"),), "markup", "thinking")
    assert (text.settled, text.kind, text.state) == (((1, "answer"),), "answer", "answer")


@given(st.lists(st.tuples(st.sampled_from(("a", " ", "", "<", "\n")), st.booleans(), st.booleans())))
def test_where_no_mark_can_begin_a_reply_is_read_as_with_one_that_never_comes(
    drawn: list[tuple[str, bool, bool]],
) -> None:
    tokens = [ReplyToken(*each) for each in drawn]
    for begin in ("answer", "tool call", "thinking", "no such"):
        marked = ReplyFormat(begin, (ReplyMark(begin, "never", "answer"),))
        assert read(ReplyFormat(begin), tokens) == read(marked, tokens)


# ---- calls that can't be parsed -----------------------------------------------------------------

BROKEN = [
    ("json_tools", '\n{"name": "zeta", "arguments": {"city": }}\n', "}"),
    ("json_tools", '{"name": "zeta" "arguments": {}}', '"arguments'),
    ("json_tools", '{"name": "zeta", "arguments": {"city": "P', '"P'),
    ("json_tools", '{"arguments": {}}', "}"),
    ("json_tools", '{"name": "zeta", "arguments": 3}', "}"),
    ("mistral", '[{"name": "zeta", "arguments": {"city": }}]', "}}]"),
    ("mistral", 'zeta[ARGS]{"city": oops}', "oops"),
    (
        "kimi_k2",
        '<|tool_call_begin|>functions.zeta:0<|tool_call_argument_begin|>{"a": oops}<|tool_call_end|>',
        "oops",
    ),
    ("qwen3_coder", "\n<function=zeta>\n<parameter=city>\nParis\n", "\n"),
    ("pythonic", "zeta(city=", "="),
    ("json", '{"city": nope}', "nope"),
    ("json", "[1]", "]"),
    ("glm47", "", ""),
]


@pytest.mark.parametrize(("parser", "text", "at"), BROKEN)
def test_a_call_that_can_not_be_parsed_names_the_place(parser: str, text: str, at: str) -> None:
    with pytest.raises(CallError) as told:
        parse_call(parser, text, None)
    place = min(told.value.place, len(text) - 1) if text else 0
    assert text[place:].startswith(at)
    assert str(told.value)
    assert len(str(told.value)) < 150


@pytest.mark.wide(28)
@pytest.mark.parametrize("parser", PARSERS)
@pytest.mark.parametrize(
    "text",
    ["", "{" * 5000, "[" * 5000, "(" * 5000, "<arg_key>" * 3000, "a" * 65_536, '{"a": ' * 3000, "\udcff{"],
)
def test_no_text_breaks_a_parser_in_the_engine(parser: str, text: str) -> None:
    place = 0
    with suppress(CallError):
        try:
            parse_call(parser, text, [])
        except CallError as error:
            place = error.place
            raise
    assert 0 <= place <= len(text)


def test_marks_of_a_hostile_recording_end() -> None:
    marks = [ReplyMark("answer", "", "answer"), ReplyMark("answer", "x" * 10**6, "thinking")]
    marks += [ReplyMark("answer", f"<{number}>", "no such") for number in range(1000)]
    kinds, _ = read(ReplyFormat("answer", tuple(marks)), [ReplyToken("<1>"), ReplyToken("y" * 1000)])
    assert kinds == ["markup", "markup"]
    assert ReplyReader(ReplyFormat("\x1b[2J")).begin.kind == "markup"
