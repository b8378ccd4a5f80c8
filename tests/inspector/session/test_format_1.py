"""A trace of format 1, written by the last version that had one tree a prompt, opens as it did then."""

from __future__ import annotations

from pathlib import Path

from engine.protocol import PromptOpened, Record, Step
from engine.trace import Entry, load, save_as
from inspector.session.going_live import restore_of
from inspector.state.timeline import Phase, Timeline

OLD = Path(__file__).parents[2] / "engine" / "trace" / "format-1.trace.gz"
"""Two prompts, three steps and a branch after the first, two steps after the second."""


def shown(entries: list[Entry]) -> Timeline:
    timeline = Timeline(recorded=True)
    for entry in entries:
        if isinstance(entry.value, Record):
            timeline.apply(entry.value)
    return timeline


def test_its_last_prompt_is_on_show() -> None:
    entries = load(OLD).entries
    opened = [entry.value for entry in entries if isinstance(entry.value, PromptOpened)]
    assert [each.text for each in opened] == ["Once upon a time", "Once upon a hill"]
    assert all(each.new_tree and each.parent == each.held == 0 and each.messages == () for each in opened)
    timeline = shown(entries)
    assert "".join(item.text for item in timeline.items).startswith("Once upon a hill")
    assert len(timeline.steps) == 2
    assert timeline.phase is Phase.READY
    assert len(timeline.prompts.by_end) == 1
    assert set(timeline.tree.nodes) == set(range(1, len(timeline.items) + 1))
    assert restore_of(timeline, {}) is not None


def test_saved_again_it_is_of_format_2_and_shows_the_same(tmp_path: Path) -> None:
    trace = load(OLD)
    save_as(tmp_path / "again.trace", trace.entries, "a test")
    head = (tmp_path / "again.trace").read_text().splitlines()[0]
    assert head.startswith('{"mlx-inspector-trace":2,')
    assert [entry.value for entry in load(tmp_path / "again.trace").entries] == [
        e.value for e in trace.entries
    ]
    steps = [entry.value for entry in trace.entries if isinstance(entry.value, Step)]
    assert len(steps) == 6
