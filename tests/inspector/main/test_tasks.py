"""Forty tasks in the words of people who come to such a program, and what they press: three keys and a word at most.

The first twenty are of the kind that the walk through all tools was made of; the others come from questions in forums
and issues of programs like it. Each is tried with what the screen shows: a tab, an answer in the line under it, a key
in the last line, or the finder. `:word` stands for the finder's key, the word and enter: two keys and a word.
"""

from __future__ import annotations

import pytest

from inspector.keys import textual_name
from inspector.main.dialogs.finder import FinderDialog
from inspector.main.panels.text import TextPanel
from tests.inspector.main.test_overlays import branched
from tests.inspector.rig import Rig, run

TASKS: tuple[tuple[str, str, str], ...] = (
    # of the walk
    ("see what could come next", "1", "view candidates"),
    ("see why this token was chosen", "2", "view why"),
    ("make it less random and see what would have changed", "2 -", "tried"),
    ("see which words the model looks at here", "3 A", "view attention"),
    ("see what the model would have said half way through", "3 I", "view lens"),
    ("see what the model is made of", "3", "view modules"),
    ("see what another word would have led to", "1 l", "look ahead"),
    ("go back to a text that was left", "4", "view tree"),
    ("see how two versions differ", "4 c", "view compare"),
    ("switch a head off", "4 X", "view interventions"),
    ("compare with the 4-bit model", "4 h", "view second_model"),
    ("see how the cache grows", "5", "view kv"),
    ("see where the time goes", "5 t", "view timing"),
    ("see what the cache is good for", "5 z", "view race"),
    ("find out what is slow in a step", "5 P", "view profile"),
    ("learn what temperature does", "6 S", "view lessons"),
    ("be shown around", "6", "view lessons"),
    ("save what was found for a colleague", "7 E", "dialog ExportDialog"),
    ("give another prompt", "p", "dialog PromptDialog"),
    ("change top-p", "s", "dialog SamplingDialog"),
    # of forums and issues
    ("follow several continuations at once", "4 B", "view beams"),
    ("force a certain word here", "1 /", "dialog FindDialog"),
    ("have the output be JSON", "1 J", "dialog GrammarDialog"),
    ("check how often a token really comes", "1 o", "view draws"),
    ("which layer writes this token", "3 D", "view attribution"),
    ("does the position matter", "3 Y", "view positions"),
    ("patch activations from another prompt", "4 P", "view patching"),
    ("run many prompts together", "5 b", "view batch"),
    ("would fewer bits in the cache hurt", "5 Q", "view compare_kv"),
    ("speculative decoding", ":speculative", "view speculation"),
    ("how long until the first token", ":ttft", "view timing"),
    ("open another model", "3 o", "dialog ModelDialog"),
    ("how many parameters has it", "3 i", "dialog FactsDialog"),
    ("stop where the model is unsure", "1 b", "dialog BreakpointsDialog"),
    ("show the token ids", "1 e", "tokens"),
    ("continue yesterday's session", ":sessions", "dialog SessionsDialog"),
    ("knock-out study", ":knockout", "view interventions"),
    ("logit lens", ":lens", "view lens"),
    ("set the temperature", ":temperature", "dialog SamplingDialog"),
    ("what does perplexity mean", "?", "dialog HelpDialog"),
)  # fmt: skip
"""What is wanted, what is pressed, and by what it can be seen that it is there."""
MOST_KEYS, MOST_WORDS = 3, 1


def reached(rig: Rig, seen: str) -> bool:
    """Whether what was wanted is there."""
    kind, _, name = seen.partition(" ")
    main = rig.app.main
    match kind:
        case "view":
            return main.view == name
        case "dialog":
            return type(rig.app.top).__name__ == name
        case "tried":
            return rig.timeline.trial is not None
        case "look":
            return any(type(command).__name__ == "LookAhead" for command in rig.engine.sent)
    return main.query_one(TextPanel).view != "off"


async def press(rig: Rig, ways: str) -> None:
    """Press what a task says; a word is chosen once the finder has found something."""
    for key in ways.split():
        if key.startswith(":"):
            await rig.app._press_keys([":", *key[1:]])
            await rig.until(lambda: isinstance(rig.app.top, FinderDialog))
            await rig.until(lambda: rig.app.top.choices)
            key = "enter"
        await rig.app._press_keys([textual_name(key)])  # what is pressed, whatever tab it belongs to
        await rig.pilot.pause()


@pytest.mark.parametrize(
    ("size", "every"),
    [((80, 24), 4), *(pytest.param(size, 1, marks=pytest.mark.slow) for size in ((120, 40), (80, 24)))],
)
def test_forty_tasks_take_three_keys_and_a_word(size: tuple[int, int], every: int) -> None:
    """Of the forty each fourth in the quick suite."""

    async def test(rig: Rig) -> None:
        await branched(rig)
        missed = []
        first = dict(rig.app.main._last)
        for task, ways, seen in TASKS[::every]:
            main = rig.app.main
            main._last.update(first)  # as at the start: a tab opens with its first answer
            main.query_one(TextPanel).view = "off"
            await press(rig, ways)
            try:
                await rig.until(lambda seen=seen: reached(rig, seen), 5)
            except AssertionError:
                missed.append((task, ways, type(rig.app.top).__name__, main.view, rig.status))
            for _ in range(3):
                await rig.app._press_keys(["escape"])
                await rig.pilot.pause()
            for command in [*rig.app.controller.client.outstanding]:
                await rig.end(command.kind, cancelled=True)
            await rig.press("1")
            assert rig.app.top is main, task
            assert main.view == "candidates", task
        assert not missed, "\n".join(map(str, missed))

    run(test, size)


def test_no_task_takes_more_than_three_keys_and_a_word() -> None:
    assert len(TASKS) == 40
    for task, ways, _ in TASKS:
        keys, words = sum(2 if key[1:] else 1 for key in ways.split()), ways.count(":")
        assert keys <= MOST_KEYS, task
        assert words <= MOST_WORDS, task
