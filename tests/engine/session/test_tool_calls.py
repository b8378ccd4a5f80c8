"""Tool calls of a session's replies are parsed by mlx_lm's own parsers, and runs stop where segments begin and end."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache

import pytest

from engine import protocol
from engine.breakpoints import Breakpoints
from engine.protocol import ChatOptions, Failure, Message, ToolCallChecked
from engine.session.run import BreakpointEvaluator
from engine.session.texts import CALL_LIMIT
from engine.settings import LoadSettings, Settings
from inspector.session.replay import restore_of
from inspector.state.timeline import Timeline
from tests import templates
from tests.engine.unthreaded import Unthreaded

ASKED = (Message("user", "What does <think> mean?"),)


Engine = Callable[..., Unthreaded]


@pytest.fixture(scope="module")
def engine() -> Engine:
    """The engine at the end of the question, which is read once: each test puts in a reply of its own."""

    @cache
    def asked(name: str, tools: bool) -> tuple[Unthreaded, int]:
        config = json.dumps({"chat_template": templates.source(name)})
        options = ChatOptions(config=config, tools=json.dumps([templates.WEATHER]) if tools else "")
        made = Unthreaded(LoadSettings())
        made.do(protocol.Configure(Settings(temp=0.0)))
        made.do(protocol.Prefill(ASKED[0].content, chat=True, messages=ASKED, options=options))
        return made, made.session.node

    def at_the_end(name: str = "qwen3", tools: bool = True) -> Unthreaded:
        made, end = asked(name, tools)
        made.do(protocol.MoveTo(end))
        assert made.session.node == end
        return made

    return at_the_end


def said(of: Unthreaded, text: str) -> int:
    """Put a text into the reply; the node of its last token."""
    of.do(protocol.Insert(of.session.node, text))
    return of.session.node


def checked(of: Unthreaded, text: str) -> ToolCallChecked:
    [record, _] = of.do(protocol.CheckToolCall(said(of, text)))
    assert isinstance(record, ToolCallChecked)
    return record


def test_a_call_names_its_functions(engine: Engine) -> None:
    of = engine()
    text = '<think>Hm</think>\n<tool_call>\n{"name": "zeta", "arguments": {"city": "Paris"}}\n</tool_call>'
    found = checked(of, text)
    assert (found.names, found.error, found.wrong, found.parser) == (("zeta",), "", 0, "json_tools")


def test_the_token_is_named_where_a_call_went_wrong(engine: Engine) -> None:
    of = engine()
    said(of, '<tool_call>\n{"name": "zeta", "arguments": {"city": ')
    said(of, "Paris")
    found = checked(of, "}}\n</tool_call>")
    assert found.error == "Expecting value"
    assert of.session.reply_token(found.wrong).text.startswith("P")
    assert found.names == ()


def test_the_last_call_is_checked_and_one_without_an_end(engine: Engine) -> None:
    of = engine()
    assert checked(of, '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n').names == ("a",)
    assert checked(of, '<tool_call>{"name": "b", "arguments": {}}').names == ("b",)


def test_a_family_without_a_parser_says_so(engine: Engine) -> None:
    found = checked(engine("llama31", tools=False), "<|python_tag|>zeta.call(city=1)")
    assert (found.names, found.error, found.parser) == ((), "", "")


def test_a_call_that_is_too_long_is_not_parsed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    of = engine()
    call = '<tool_call>{"name": "a", "arguments": {"b": "' + "x" * CALL_LIMIT
    format, nodes = of.session.reply(said(of, "a"))
    assert format.parser == "json_tools"
    monkeypatch.setattr(of.session, "reply_token", lambda node: protocol_token(call))
    [found, _] = of.do(protocol.CheckToolCall(nodes[-1]))
    assert (found.error, found.parser) == ("", "")  # type: ignore[attr-defined]


def protocol_token(text: str) -> object:
    from engine.segments import ReplyToken

    return ReplyToken(text)


def test_what_is_no_call_is_refused(engine: Engine) -> None:
    of = engine()
    for node in (said(of, "Fine."), 1, 0, 9999, -1):
        [failure, _] = of.do(protocol.CheckToolCall(node))
        assert isinstance(failure, Failure)
        assert failure.expected
        assert failure.hint


# ---- breakpoints --------------------------------------------------------------------------------


@pytest.mark.wide(2)
@pytest.mark.parametrize(
    ("event", "before"),
    [
        ("thinking begins", "<think>"), ("thinking ends", "<think>Hm</think>"), ("answer ends", "<think>"),
        ("answer begins", "<think>Hm</think>"), ("tool call begins", "<think>Hm</think>Fine<tool_call>"),
        ("tool call ends", "<think>Hm</think>Fine<tool_call>{}</tool_call>"),
    ],
)  # fmt: skip
def test_a_run_stops_where_a_segment_begins_or_ends(engine: Engine, event: str, before: str) -> None:
    """Token by token, as a run evaluates it; the users' own mark counts for nothing."""
    of = engine()
    session, tokens = of.session, of.session.tokens
    evaluator = BreakpointEvaluator(session, [Breakpoints(segment=event)])
    ids = tokens.encode("<think>Hm</think>Fine<tool_call>{}</tool_call>.", bare=True)
    for token in ids:
        session.step(token, "inserted")
        if evaluator.evaluate(session.position.node_logits):
            break
    _, nodes = session.reply(session.node)
    assert "".join(tokens.text(session.tree[node].token)[0] for node in nodes).startswith(before)
    assert len(tokens.join([session.tree[node].token for node in nodes])) - len(before) < 3
    assert evaluator.hits == (event,)


def test_a_run_that_goes_on_knows_what_was_said_before(engine: Engine) -> None:
    of = engine()
    said(of, "<think>Hm")
    evaluator = BreakpointEvaluator(of.session, [Breakpoints(segment="thinking ends")])
    for token in of.session.tokens.encode("</think>", bare=True):
        of.session.step(token, "inserted")
        stops = evaluator.evaluate(of.session.position.node_logits)
    assert stops


def test_a_session_that_is_restored_knows_how_its_replies_are_marked() -> None:
    """Where the template opened the thinking, only the recording says so."""
    of = Unthreaded(LoadSettings())
    options = ChatOptions(
        config=json.dumps({"chat_template": templates.source("seed_oss"), "thinking_budget": 0})
    )
    of.do(protocol.Prefill("a", chat=True, messages=ASKED, options=options))
    timeline = Timeline()
    for record in of.records:
        timeline.apply(record)
    command = restore_of(timeline, {})
    assert command is not None
    again = Unthreaded(LoadSettings())
    again.do(command)
    format, nodes = again.session.reply(again.session.node)
    assert (format.begin, nodes) == ("thinking", [])
    assert format == of.session.reply(of.session.node)[0]
