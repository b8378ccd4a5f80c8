"""Replies of mlx_lm.server computed again: its tokens are found, its texts explained, its names counted.

`served.har` has requests to mlx_lm.server 0.32.2 on the bundled model, which computed in bfloat16 on a processor.
Elsewhere the same may be rounded otherwise, so that a drawn reply can't always be repeated.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from engine.protocol import Command, Insert, PromptOpened, ReplyFormat, ReplyMark, Take
from engine.settings import Settings
from inspector.cli.main import main
from inspector.served.replies import ServedReply
from inspector.served.requests import served_request
from inspector.served.rescoring import ROUNDING, Rescoring, as_served, said_as
from tests.inspector.fakes import facts, session

SERVED = Path(__file__).with_name("served.har")
AS_SERVED = ("--model", "pocket", "--dtype", "file", "--blas", "bundled")


FEW, REST = (5, 7, 13, 18, 24, 41), (2, 3, 9, 26, 33, 36)
"""Requests with short replies, of each kind; and the others, which take three quarters of the time."""


def numbers(*of: int) -> list[Any]:
    """Parameters: those beyond the few are slow."""
    return [pytest.param(each, marks=() if each in FEW else pytest.mark.slow) for each in of]


class Checked:
    """What `--check` says of each, by its number: asked for once for the few, and once for the others.

    Args:
        folder: Where their files are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[int, dict[str, Any]] = {}

    def __getitem__(self, number: int) -> dict[str, Any]:
        if number not in self._found:
            self._ask(FEW if number in FEW else REST)
        return self._found[number]

    def _ask(self, wanted: tuple[int, ...]) -> None:
        import io
        from contextlib import redirect_stderr, redirect_stdout

        entries = json.loads(SERVED.read_text("utf-8"))["log"]["entries"]
        own = [each if n in wanted else entries[0] for n, each in enumerate(entries, 1)]
        path = self._folder / f"{wanted[0]}.har"
        path.write_text(json.dumps({"log": {"entries": own}}), encoding="utf-8")
        with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()):
            assert main(["open", str(path), "--check", "--jsonl", *AS_SERVED]) == 0
        self._found |= {each["number"]: each for each in map(json.loads, out.getvalue().splitlines())}


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Checked:
    return Checked(tmp_path_factory.mktemp("served"))


@pytest.mark.parametrize("asked", [FEW, pytest.param(REST, marks=pytest.mark.slow)], ids=["few", "rest"])
def test_prompts_have_as_many_tokens_as_at_the_server(checked: Checked, asked: tuple[int, ...]) -> None:
    for each in map(checked.__getitem__, asked):
        assert each["error"] is None
        assert each["served_prompt_tokens"] in (None, each["prompt_tokens"])


@pytest.mark.parametrize("number", numbers(2, 5, 13, 26, 41))
def test_greedy_replies_are_the_same_tokens(checked: Checked, number: int) -> None:
    each = checked[number]
    assert each["same_text"]
    assert {token["verdict"] for token in each["tokens"]} <= {"equal", "rounding"}


@pytest.mark.parametrize("number", numbers(3, 9, 18, 24, 33, 36))
def test_seeded_replies_are_drawn_again_by_mlx(checked: Checked, number: int) -> None:
    each = checked[number]
    assert each["same_text"]
    if each["source"] in ("named", "repeated"):
        assert {token["verdict"] for token in each["tokens"]} <= {"equal", "differs", "drawn"}


def test_draws_without_a_seed_are_not_judged(checked: Checked) -> None:
    each = checked[7]
    assert (each["source"], {token["verdict"] for token in each["tokens"]}) == ("cut", {"drawn"})
    assert "its draws can't be repeated" in " ".join(each["notes"])


@pytest.mark.parametrize("number", numbers(5, 13, 24, 33, 36))
def test_logprobs_are_compared_as_the_server_names_them(checked: Checked, number: int) -> None:
    assert checked[number]["largest"] <= ROUNDING


@pytest.mark.slow
def test_no_logprobs_are_compared_where_the_server_names_none(checked: Checked) -> None:
    assert checked[2]["largest"] is None


@pytest.mark.parametrize("number", numbers(5, 13, 33, 36))
def test_tokens_that_it_names_wrongly_are_counted(checked: Checked, number: int) -> None:
    """Without `top_logprobs`, in 5 and 36, the names are true."""
    least, most = {5: (0, 0), 13: (16, 16), 33: (20, 24), 36: (0, 0)}[number]
    assert least <= checked[number]["misnamed"] <= most


@pytest.mark.parametrize("number", numbers(18, 9, 33))
def test_what_it_made_of_the_text_is_said(checked: Checked, number: int) -> None:
    said = {
        18: "left out the space",
        9: "deleted 'day' from the text",
        33: "penalties didn't see the 14 tokens",
    }[number]
    assert any(said in note for note in checked[number]["notes"])


@pytest.mark.parametrize(
    ("loaded", "flags"),
    [
        ({"dtype": "float32", "stored": "bfloat16", "blas": "OpenBLAS 0.3"}, "--dtype file --blas bundled"),
        (
            {"dtype": "float32", "stored": "4-bit, group 64, affine", "blas": "OpenBLAS 0.3"},
            "--dtype file --no-float32-scales --blas bundled",
        ),
        (
            {"dtype": "float32", "quantization": "4-bit, group 64, affine", "blas": ""},
            "--no-float32-scales",
        ),
        ({"dtype": "bfloat16", "quantization": "4-bit, group 64, affine", "blas": ""}, ""),
        ({"dtype": "bfloat16", "blas": ""}, ""),
    ],
)
def test_the_flags_that_compute_as_a_server_does_are_those_that_are_missing(
    loaded: dict[str, Any], flags: str
) -> None:
    said = as_served(facts(**{"stored": "", "backend": "cpu", "quantization": None, **loaded}))
    assert said.partition(": ")[2].rstrip(".") == flags
    assert bool(flags) == said.startswith("With these flags")


def reply(text: str, reasoning: str = "", finish: str = "stop", cut: bool = False) -> ServedReply:
    return ServedReply("mlx_lm", text, reasoning, (), (), finish, None, None, None, cut=cut)


@pytest.mark.parametrize(
    ("written", "answer", "stops", "same", "words"),
    [
        ("a b", reply("a b"), (), True, ""),
        ("a b", reply("a c"), (), False, ""),
        (" a b", reply("a b"), (), True, "left out the space"),
        ("a b. c", reply("a b"), (".",), True, ""),
        ("a stop b stop c", reply("a  b  c"), ("stop",), True, "deleted 'stop'"),
        ("<think>\nhm</think>\n\nyes", reply("yes", "hm"), (), True, ""),
        ("yes", reply("", "yes"), (), True, "all of it as reasoning"),
        ("yes and no", reply("yes", cut=True), (), True, "broke off"),
        ("yes and no", reply("no", cut=True), (), False, ""),
    ],
)
def test_the_servers_text_is_explained(
    written: str, answer: ServedReply, stops: tuple[str, ...], same: bool, words: str
) -> None:
    got, notes = said_as(written, answer, Settings(stop=stops))
    assert got is same
    assert words in " ".join(notes)
    assert bool(words) == bool(notes)


def commands_of(request: dict[str, Any], answer: ServedReply, format: ReplyFormat) -> list[Command]:
    """What is sent for a reply to a prompt that was read."""
    asked = served_request({"messages": [{"role": "user", "content": "Well?"}], **request}, "It")
    rescoring = Rescoring(asked, answer)
    for record in (*session().load(), *session().open()):
        if isinstance(record, PromptOpened):
            record = replace(record, segments=replace(record.segments, reply=format))
        rescoring.take(record)
    return list(rescoring.commands())


@pytest.mark.parametrize(
    ("format", "text"),
    [
        (ReplyFormat(), "<think>hm</think>yes"),
        (ReplyFormat("thinking", (ReplyMark("thinking", "</think>", "answer"),)), "hm</think>yes"),
        (
            ReplyFormat(
                "answer",
                (ReplyMark("answer", "[THINK]", "thinking"), ReplyMark("thinking", "[/T]", "answer")),
            ),
            "[THINK]hm[/T]yes",
        ),
    ],
)
def test_thinking_is_put_back_between_the_models_own_marks(format: ReplyFormat, text: str) -> None:
    sent, end = commands_of({"temperature": 1.0}, reply("yes", "hm"), format)
    assert isinstance(sent, Insert)
    assert isinstance(end, Take)
    assert (sent.text, sent.leave_grammar) == (text, True)


def test_a_reply_longer_than_a_model_writes_is_not_computed_again() -> None:
    assert commands_of({}, reply("a" * 2**20), ReplyFormat())
    long = reply("a" * (2**20 + 1))
    assert commands_of({}, long, ReplyFormat()) == []
    result = Rescoring(served_request({"prompt": "Once"}, "It"), long).result()
    assert result.source is None
    assert result.notes[-1].startswith("The reply has 1,048,577 characters")


def test_no_end_is_taken_right_after_the_text_of_a_reply_with_calls() -> None:
    """The tokens of the calls come between, and which they are isn't known."""
    answer = replace(reply("Let me look."), calls=("f({})",), finish="tool_calls")
    (sent,) = commands_of({"temperature": 1.0}, answer, ReplyFormat())
    assert isinstance(sent, Insert)


def test_nothing_is_sent_for_what_was_refused_or_not_answered() -> None:
    refused = replace(reply(""), error="404 no")
    assert commands_of({}, refused, ReplyFormat()) == []
