"""What a conversation's next prompt loses of the KV cache, on the bundled model, against the engine's counts."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest

from engine import pocket, protocol
from engine.protocol import AddTurn, Message, Prefill, Prefilled, PromptOpened, TurnDiffers
from engine.settings import LoadSettings, Settings
from inspector.state.prefixes import Broken, broken_by, template_parting
from inspector.state.timeline import Timeline
from tests.engine.unthreaded import Unthreaded

TEMPLATE = (
    "{% for m in messages %}{% set content = m['content'] %}"
    "{% if m['role'] == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""As Qwen 3 and its like: the thinking of earlier answers is dropped."""
ASKED = "Tell me a story about a dog who was very happy."
THOUGHT = "<think>\nThey want a dog. I should say what it did, in few words.\n</think>\n\nThe dog ran."


class Talk(Unthreaded):
    """A session on a model whose template drops thinking, and the timeline of its records."""

    def __init__(self, folder: Path, settings: LoadSettings | None = None) -> None:
        for name in ("config.json", "tokenizer.json", "model.safetensors"):
            shutil.copy(pocket.directory() / name, folder)
        config = json.loads((pocket.directory() / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATE}))
        super().__init__(replace(settings or LoadSettings(), model=str(folder)), Settings(temp=0))
        self.timeline, self._shown = Timeline(), 0
        self.show()

    def show(self) -> None:
        """Have the timeline take in what was emitted."""
        for record in self.records[self._shown :]:
            self.timeline.apply(record)
        self._shown = len(self.records)

    def said(self, *commands: protocol.Command) -> Timeline:
        self.do(*commands)
        self.show()
        return self.timeline

    def turn(self, differing: str) -> AddTurn:
        opened = self.timeline.prompts.opened
        assert opened is not None
        return AddTurn("And then?", opened.messages, opened.options, False, differing)


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


def test_thinking_that_the_template_drops_is_lost(talk: Talk) -> None:
    timeline = talk.said(Prefill(ASKED, True, echo=False))
    assert timeline.prompts.current.broken is None
    talk.said(protocol.Insert(timeline.tip, THOUGHT + "<|im_end|>"))
    path = [item.id for item in timeline.items]
    (differs,) = talk.of(TurnDiffers, talk.do(talk.turn("ask")))
    found = template_parting(timeline.prompts.opened, timeline.items, differs)
    assert (found.cause, found.shared, found.lost) == ("thinking", differs.kept, len(path) - differs.kept)
    talk.said(talk.turn("template"))
    opened, read = talk.of(PromptOpened)[-1], talk.of(Prefilled)[-1]
    ids = [token.id for token in opened.tokens]
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(path, ids, strict=False)))
    broken = timeline.prompts.current.broken
    assert broken == Broken(shared, len(path), len(ids) - shared, "thinking")
    assert opened.held in (shared, shared - 1)
    assert read.kept + read.restored == opened.held
    ms = read.ttft_ms * min(broken.lost, broken.anew) / (len(ids) - opened.held)
    assert timeline.prompts.lost_words.startswith(
        f"{len(path) - shared} of {len(path)} cached lost: thinking, "
    )
    assert float(timeline.prompts.lost_words.rpartition("about ")[2].split()[0]) == pytest.approx(
        ms, rel=0.02
    )


def test_thinking_whose_beginning_no_mark_tells(talk: Talk) -> None:
    timeline = talk.said(Prefill(ASKED, True, echo=False))
    talk.said(protocol.Insert(timeline.tip, "They want a dog.</think>The dog ran.<|im_end|>"))
    (differs,) = talk.of(TurnDiffers, talk.do(talk.turn("ask")))
    assert template_parting(timeline.prompts.opened, timeline.items, differs).cause == "thinking"


def test_a_turn_that_keeps_the_path_loses_nothing(talk: Talk) -> None:
    timeline = talk.said(Prefill(ASKED, True, echo=False))
    talk.said(protocol.Insert(timeline.tip, THOUGHT + "<|im_end|>"))
    timeline = talk.said(talk.turn("path"))
    assert talk.of(PromptOpened)[-1].held >= len(timeline.items) - 40
    assert (timeline.prompts.current.broken, timeline.prompts.lost_words) == (None, "")


def chat(minute: str, asked: str = ASKED) -> Prefill:
    messages = (Message("system", f"You are kind. Now: 12:0{minute}."), Message("user", asked))
    return Prefill(asked, True, echo=False, messages=messages)


def test_a_time_in_the_system_prompt(talk: Talk) -> None:
    talk.said(chat("0"))
    timeline = talk.said(chat("1"))
    broken = timeline.prompts.current.broken
    assert broken is not None
    assert (broken.cause, broken.lost) == ("date or time", broken.anew)
    # back to the first: its KV was kept, so that nothing is lost
    timeline = talk.said(chat("0"))
    assert timeline.prompts.current.broken is None


def test_another_conversation_or_raw_text_is_no_break(talk: Talk) -> None:
    talk.said(chat("0"))
    assert talk.said(chat("0", "What is rain?")).prompts.current.broken is None
    assert talk.said(Prefill("Once upon a time", False, echo=False)).prompts.current.broken is None
    assert talk.said(chat("1")).prompts.current.broken is None


def test_without_a_kv_cache_nothing_could_be_used(tmp_path: Path) -> None:
    talk = Talk(tmp_path, LoadSettings(no_kv_cache=True))
    talk.said(chat("0"))
    assert talk.said(chat("1")).prompts.current.broken is None


def test_what_a_recording_says_of_a_cache_is_held_against_its_tokens(talk: Talk) -> None:
    talk.said(chat("0"))
    talk.said(chat("1"))
    first, second = talk.of(PromptOpened)
    assert broken_by(first, first.tokens, second) is not None
    for held in (0, 10**9, -1):
        assert broken_by(first, first.tokens, replace(second, held=held)) is None
    assert broken_by(first, (), second) is None
    assert broken_by(replace(first, tokens=()), first.tokens, second) is None
    assert broken_by(first, first.tokens, replace(second, tokens=())) is None
