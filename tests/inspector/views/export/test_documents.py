"""Exports: what each holds, how foreign text is kept text, and how files come to be."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import force_setattr

from engine.errors import EngineError
from engine.protocol import Deleted, Marked, Step
from engine.settings import LoadSettings, Settings
from inspector.cli.screen import picture
from inspector.display import GUARDED, guarded
from inspector.export.documents import FORMATS, embedded, escaped
from inspector.export.recording import Recording, line, paths, read, snapshot, totals
from inspector.scales import METRIC
from inspector.state.speculation import Speculation
from inspector.state.timeline import Timeline
from inspector.views.breakpoints import SURPRISE
from tests.inspector.cold import cold_start
from tests.inspector.fakes import HOSTILE, Session, session
from tests.inspector.story import STORY
from tests.inspector.views.drafts.made import draft_round

BLOCKED = """
import sys
import types
for name in ("mlx", "mlx_lm", "transformers", "numpy"):
    sys.modules[name] = None
from inspector.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def command(
    *arguments: str,
    cwd: Path,
    code: str = "from inspector.cli.main import main; import sys; sys.exit(main())",
):
    """Run `inspector` in a process of its own."""
    place = {**os.environ, "PYTHONPATH": os.getcwd(), "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=place,
        capture_output=True,
        text=True,
        timeout=60,
    )


def told(made: Session | None = None, **more: object) -> Recording:
    return line(Recording((made or session(9)).timeline(), Settings(temp=0.8, seed=7), **more))  # type: ignore[arg-type]


def page_data(recording: Recording) -> dict[str, object]:
    """What a page shows, read back from it."""
    found = re.search(r'id="data">(.*?)</script>', FORMATS["html"](recording), re.DOTALL)
    assert found is not None
    return json.loads(found[1])  # type: ignore[no-any-return]


def table(recording: Recording) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(FORMATS["csv"](recording))))


def branched() -> Session:
    """A session with a branch, named, and a deleted one."""
    made = session(6)
    fork = made.records[-3]
    assert isinstance(fork, Step)
    for place in (1, 2):
        made.choose(fork.parent, fork.choice.candidates[place].id if fork.choice.candidates[place].id != fork.id else
                    fork.choice.candidates[0].id)  # fmt: skip
        made.steps(2)
    return made


# ---- the web page -----------------------------------------------------------------------------


def test_a_page_of_500_steps_with_20_candidates_is_below_300_kb() -> None:
    made = Session(count=20)
    made.load()
    made.open()
    made.steps(500)
    assert len(FORMATS["html"](told(made)).encode()) < 300_000


def test_the_page_has_every_number_of_the_steps() -> None:
    recording = told()
    found = page_data(recording)["tokens"]
    for place, item in enumerate(recording.items):
        if not isinstance(item, Step):
            continue
        assert found["prob"][place] / 1e6 == pytest.approx(item.prob, rel=0.005)
        assert found["drawn"][place] / 1e6 == pytest.approx(item.sampler_prob, rel=0.005)
        assert found["bits"][place] == pytest.approx(item.surprisal_bits, abs=0.0005)
        assert found["rank"][place] == item.rank
        assert found["ms"][place][0] == pytest.approx(item.ms.total, abs=0.005)
        assert found["kv"][place] == [item.kv.used_bytes, item.kv.allocated_bytes, item.kv.offset]


def test_the_page_has_every_candidate_and_what_cut_it() -> None:
    recording = told()
    found = page_data(recording)
    step = recording.items[-1]
    assert isinstance(step, Step)
    words, probs, drawn, cuts, others, mass, ranks, rest = found["tokens"]["candidates"][-1]
    candidates = step.choice.candidates
    assert [found["words"][word][0] for word in words] == [each.id for each in candidates]
    assert [each / 1e6 for each in probs] == pytest.approx(
        [each.prob for each in candidates], rel=0.05, abs=1e-8
    )
    kept = [each.sampler_prob for each in candidates if each.cut_by is None]
    assert [each / 1e6 for each in drawn] == pytest.approx(kept, rel=0.005)
    names = [None if cut == "." else found["stages"][int(cut)] for cut in cuts or "." * len(words)]
    assert names == [each.cut_by for each in candidates]
    assert (others, mass / 1e6) == (step.choice.others, pytest.approx(step.choice.others_prob, rel=0.01))
    assert rest / 1e6 == pytest.approx(step.choice.others_sampler_prob, rel=0.01)
    assert ranks == []


def test_a_long_session_keeps_fewer_candidates_and_their_mass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspector.export.documents.CANDIDATES", 0)
    recording = told()
    step = recording.items[-1]
    assert isinstance(step, Step)
    words, probs, _, _, others, mass, *_ = page_data(recording)["tokens"]["candidates"][-1]
    assert len(words) in (3, 4)  # the one that was taken is always among them
    assert others == step.choice.others + len(step.choice.candidates) - len(words)
    assert sum(probs) + mass == pytest.approx(1e6, rel=1e-3)


def test_a_branch_in_the_list_has_the_tokens_and_the_perplexity_that_the_tree_gives_it() -> None:
    recording = told(branched())
    tree, listed = recording.timeline.tree, paths(recording)
    assert len(listed) == 3
    report, rows = FORMATS["md"](recording), page_data(recording)["paths"]
    for place, path in enumerate(listed[1:], 1):
        branch = tree.branches.of(path.items[-1].node)
        assert branch is not None
        assert branch.sums.perplexity is not None
        assert (path.tokens, path.perplexity) == (branch.sums.tokens, f"{branch.sums.perplexity:.2f}")
        assert f"| {path.tokens} | {path.perplexity} |" in report
        assert (rows[place]["tokens"], rows[place]["perplexity"]) == (path.tokens, path.perplexity)


def test_surprises_of_a_report_are_those_that_the_keys_go_through() -> None:
    made = Session()
    made.load()
    made.open()
    made.steps(120)
    for bits, step in enumerate(each for each in made.records if isinstance(each, Step)):
        force_setattr(step, "surprisal_bits", bits / 10)
    recording = told(made)
    timeline = recording.timeline
    steps = {each.index + 1 for each in timeline.steps}
    found = {timeline.items[slot].index + 1 for slot in SURPRISE.slots(timeline)
             if isinstance(timeline.items[slot], Step)}  # fmt: skip
    section = FORMATS["md"](recording).partition("## Surprises")[2].partition("\n## ")[0]
    rows = {int(each) for each in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}
    assert rows == set(sorted(found)[-10:])
    assert f"{len(found) - 10} more have 4 bits or more." in section
    assert found < steps
    force_setattr(timeline.steps[-1], "surprisal_bits", 3.9)
    for step in timeline.steps[:-1]:
        force_setattr(step, "surprisal_bits", 1.0)
    assert "## Surprises" not in FORMATS["md"](recording)


@settings(suppress_health_check=[HealthCheck.too_slow])  # of the machine, not of the values
@given(
    st.recursive(
        st.text() | st.none() | st.integers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_embedded_comes_back_and_has_no_markup(value: object) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return  # halves of pairs never get here: visible() writes them out
    text = embedded(value)
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == value


def test_the_page_reveals_no_directory() -> None:
    made = Session()
    made.load(path="/home/ada/secret-models/pocket")
    made.open()
    made.steps(2)
    recording = told(made, load=LoadSettings(model="/home/ada/secret-models/pocket"))
    for each in FORMATS.values():
        assert "secret-models" not in each(recording)


# ---- paths ------------------------------------------------------------------------------------


def test_all_branches_are_told_the_current_one_first() -> None:
    recording = told(branched())
    found = paths(recording)
    assert found[0].items == recording.items
    assert found[0].title.startswith("as it stands")
    assert len(found) == 3
    assert {each.fork for each in found[1:]} == {4}
    assert all(each.items[-1].node != recording.tip for each in found[1:])


def test_a_deleted_branch_is_not_told() -> None:
    made = branched()
    timeline = made.timeline()
    other = next(each for each in paths(line(Recording(timeline)))[1:])
    timeline.apply(Deleted(other.items[-1].node))
    before = len(paths(line(Recording(made.timeline()))))
    found = paths(line(Recording(timeline)))
    assert all(other.items[-1] not in each.items for each in found)
    assert len(found) <= before


def test_of_a_large_tree_the_current_path_alone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspector.export.recording.TREE", 3)
    recording = told(branched())
    assert [each.items for each in paths(recording)] == [recording.items]
    assert page_data(recording)["left_out"] is True


def test_a_node_or_a_name_chooses_the_path() -> None:
    timeline = branched().timeline()
    other = paths(line(Recording(timeline)))[1]
    first = next(item for item in other.items if item not in timeline.items)
    timeline.apply(Marked(first.node, "the other way"))
    for to in (first.node, str(first.node), "the other way"):
        recording = line(Recording(timeline), to)
        assert recording.items == other.items
        assert recording.chosen == first.node


def test_a_node_that_is_none_is_told_with_what_there_is() -> None:
    timeline = session(2).timeline()
    with pytest.raises(EngineError, match="no node 999"):
        line(Recording(timeline), 999)
    timeline.apply(Marked(timeline.tip, "the end"))
    with pytest.raises(EngineError, match=r"No branch is named 'nix'\. Its names: the end"):
        line(Recording(timeline), "nix")


def test_without_a_prompt_there_is_nothing_to_export() -> None:
    with pytest.raises(EngineError, match="no prompt"):
        line(Recording(Timeline()))


def test_a_snapshot_stays_what_it_was() -> None:
    made = branched()
    timeline = made.timeline()
    recording = snapshot(timeline, Settings(), LoadSettings(), "x 1")
    before = {name: each(recording) for name, each in FORMATS.items()}
    for record in [*made.steps(3), *made.open()]:
        timeline.apply(record)
    assert {name: each(recording) for name, each in FORMATS.items()} == before


# ---- CSV --------------------------------------------------------------------------------------


def test_the_table_has_a_row_for_each_token_with_its_numbers() -> None:
    recording = told()
    found = table(recording)
    assert len(found) == len(recording.items)
    step, row = recording.items[-1], found[-1]
    assert isinstance(step, Step)
    assert (row["step"], row["node"], row["parent"]) == (
        str(step.index + 1),
        str(step.node),
        str(step.parent),
    )
    assert float(row["prob"]) == step.prob
    assert float(row["logprob"]) == step.logprob
    assert float(row["draw"]) == step.choice.draw
    assert float(row["ms"]) == step.ms.total
    assert int(row["kv_used_bytes"]) == step.kv.used_bytes
    assert bytes.fromhex(row["bytes"]) == step.raw
    assert found[0]["step"] == ""
    assert float(found[1]["surprisal_bits"]) == METRIC["surprisal"].value(recording.items[1])


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =cmd|'/c calc'!A1", "＝1", "'x", "\t=1"])
def test_no_cell_of_text_is_a_formula(text: str) -> None:
    made = Session(story=(text,))
    made.load()
    made.open()
    made.steps(1)
    cell = table(told(made))[-1]["text"]
    assert cell.lstrip(" ")[:1] == "'" or cell.startswith("⇥")


@given(st.text())
def test_a_guarded_text_begins_no_formula_and_can_be_taken_back(text: str) -> None:
    cell = guarded(text)
    assert cell.lstrip(" ")[:1] not in tuple(GUARDED.rstrip("'"))
    assert not [char for char in cell if ord(char) < 32]


def test_quotes_commas_and_lines_stay_in_their_cell() -> None:
    made = Session(story=('"', ",", "\n", 'a",\n"b', ";", "\t"))
    made.load()
    made.open()
    made.steps(6)
    assert [row["text"] for row in table(told(made))[-6:]] == ['"', ",", "↵", 'a",↵"b', ";", "⇥"]
    assert told(made).title.endswith('", a", "b;⇥')


def test_a_table_of_infinities_has_them_as_words() -> None:
    made = session(1)
    timeline = made.timeline()
    item = timeline.items[-1]
    force_setattr(item, "logprob", float("-inf"))
    force_setattr(item, "surprisal_bits", float("inf"))
    row = table(line(Recording(timeline)))[-1]
    assert (row["logprob"], row["surprisal_bits"]) == ("-inf", "inf")


# ---- Markdown and text ------------------------------------------------------------------------


def test_a_cold_start_is_marked_in_every_format_and_in_no_rate() -> None:
    made = session(9)
    made.records = cold_start(made.records)
    recording = told(made)
    steps = [item for item in recording.items if isinstance(item, Step)]
    mean = sum(step.ms.total for step in steps[1:]) / 8
    known = dict(totals(recording.timeline, recording.items))
    assert known["prompt"] == "5 tokens"
    assert known["first token"] == "45.5 ms, with warm-up"
    assert known["each token"].startswith(f"{mean:.1f} ms (p50 ")
    assert known["each token"].endswith(
        f"{1000 / mean:.0f} tok/s; not counted: the first, 900 ms, with warm-up"
    )
    assert "not counted: the first, 900 ms, with warm-up" in FORMATS["md"](recording)
    assert [row["cold"] for row in table(recording)[-9:]] == ["1", *["0"] * 8]
    found = page_data(recording)["tokens"]
    assert isinstance(found, dict)
    assert [times[5:] for times in found["ms"][-9:]] == [[1], *[[]] * 8]


def test_rounds_of_speculation_are_told_on_their_path_and_stay_as_they_were() -> None:
    timeline = session(9).timeline()
    timeline.of(Speculation).plain = [10.0]
    timeline.apply(draft_round(timeline.tip - 2, timeline.tip))
    taken = snapshot(timeline, Settings(), LoadSettings(), "test 1")
    timeline.apply(draft_round(timeline.tip - 2, timeline.tip))
    report = FORMATS["md"](taken)
    assert "| speculation | draft self-4bit, 3 tokens a round |" in report
    assert "| rounds | 1, 2.00 tokens a forward pass |" in report
    assert "Here drafting is as fast as plain steps" in report
    assert "speculation" not in FORMATS["md"](told())


def test_the_report_tells_text_figures_captions_and_steps() -> None:
    recording = read(STORY)
    made = FORMATS["md"](recording)
    assert "> Once upon a time, there was a little boy named Tim." in made
    assert "| 28 | ␣wall | 0.32 % | 8.28 | 31 | ␣pond 25.58 % |" in made
    assert "| a dog instead | 6 | dog named Spot." in made
    assert "A surprise: ‘␣wall’ had 0.32 %" in made
    assert "| seed | 3 |" in made
    assert made.count("\n| 66 |") == 2  # a caption and a step


def test_the_report_tells_what_was_written_onto_other_branches() -> None:
    made = session(9)
    timeline = made.timeline()
    left = timeline.steps[4]
    timeline.apply(Marked(left.node, "gone", caption="left | there", bookmarked=True))
    other = next(each.id for each in timeline.steps[2].choice.candidates if each.id != timeline.steps[2].id)
    for record in [made.move(timeline.steps[1].node), *made.choose(timeline.steps[1].node, other)]:
        timeline.apply(record)
    assert left not in timeline.items
    report = FORMATS["md"](snapshot(timeline, Settings(), LoadSettings(), "test 1"))
    row = next(line for line in report.splitlines() if "gone · left" in line)
    assert row.startswith(f"| {left.index + 1} | ")
    assert "gone · left \\| there ★ |" in row
    assert "| on another branch |" in report


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# no heading", "\\# no heading"),
        ("- no list", "\\- no list"),
        ("1. no list", "1\\. no list"),
        ("0.32 %", "0.32 %"),
        ("[a](b) <img> `c` *d* _e_ |", "\\[a\\](b) \\<img\\> \\`c\\` \\*d\\* \\_e\\_ \\|"),
        ("https://example.com", "https\\://example.com"),
        ("www.example.com", "www\\.example.com"),
        ("a@b.c &lt; \\", "a\\@b.c \\&lt; \\\\"),
        ("    no code", "\u00a0\u00a0\u00a0\u00a0no code"),
    ],
)
def test_markdown_shows_text_as_it_is(text: str, shown: str) -> None:
    assert escaped(text) == shown


def test_a_table_cell_has_no_bar_of_its_own() -> None:
    made = Session(story=("|", "a|b", "\n", "`|`"))
    made.load()
    made.open()
    made.steps(4)
    rows = [row for row in FORMATS["md"](told(made)).splitlines() if row.startswith("|")]
    for row in rows:
        assert len(re.findall(r"(?<!\\)\|", row)) in (3, 4, 6, 7, 10)


@pytest.mark.parametrize("name", ["txt", "md", "csv"])
def test_nothing_in_a_document_is_obeyed(name: str) -> None:
    made = Session(story=HOSTILE)
    made.load()
    made.open()
    made.steps(len(HOSTILE))
    text = FORMATS[name](told(made))
    assert not [char for char in text if (ord(char) < 32 and char not in "\n\t") or 0x7F <= ord(char) < 0xA0]
    assert not set(text) & set("\u202e\u202c\u200b\u2028")
    text.encode()


def test_plain_text_is_what_was_said() -> None:
    made = Session(story=(" one", "\n", "\ttwo", " \x1b[31m"), top_p=1.0)
    made.load()
    made.open()
    made.steps(4)
    assert FORMATS["txt"](told(made)) == "Once upon a time, one\n\ttwo ␛[31m\n"


# ---- the command ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_needs_no_mlx(tmp_path: Path) -> None:
    for name in ("html", "svg"):
        ran = command("export", str(STORY), "--to", name, code=BLOCKED, cwd=tmp_path)
        assert (ran.returncode, ran.stdout) == (0, ""), ran.stderr
        assert ran.stderr.startswith(f"story.{name}: ")
    assert "Content-Security-Policy" in (tmp_path / "story.html").read_text()
    picture = (tmp_path / "story.svg").read_text()
    assert "@font-face" not in picture
    assert "url(http" not in picture
    assert "magic" in picture
    assert "RECORDED" in picture
    assert "DECODE" not in picture


def test_a_picture_of_a_recording_has_the_caption_of_its_token(tmp_path: Path) -> None:
    recording = read(STORY)
    marked = next(each for each in recording.timeline.tree.marks.of.values() if "magic" not in each.caption)
    shown = picture(line(recording, marked.node), (120, 40)).replace("&#160;", " ")
    assert marked.caption[:30] in shown
    assert "A picture of a recording of" in shown
    assert "Press space" not in shown


def test_standard_output_gets_the_document_alone(tmp_path: Path) -> None:
    ran = command("export", str(STORY), "--to", "txt", "-o", "-", "--node", "a typed sky", cwd=tmp_path)
    assert ran.stdout.startswith(
        "Once upon a time, there was a little boy named Tim. Tim loved to play in the sky 🐉s."
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["batch", "second-model"])
def test_a_recording_that_comes_with_the_program_has_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inspector.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(["export", name, "--to", "csv"]) == 0
    (written,) = tmp_path.iterdir()
    assert written.suffix == ".csv"


def test_without_a_recording_it_says_that_it_is_the_demonstration(tmp_path: Path) -> None:
    ran = command("export", "--to", "txt", "-o", "-", cwd=tmp_path)
    assert ran.stdout.startswith("Once upon a time")
    assert "this is the demonstration" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "What to write was not said. Add --to: html, md, csv, txt, svg."),
        (("-o", "a.pdf"), "The end of a.pdf names no format."),
        (("nothing.trace", "-o", "a.md"), "There is no file and no session 'nothing.trace'."),
        (("--to", "svg", "--size", "9x9"), "must be COLUMNSxROWS, from 40x10 to 500x300, not '9x9'"),
        (("-o", "none/a.md"), "There is no directory none."),
        (("-o", "~nosuchuser/a.md"), "No home directory is known for ~nosuchuser."),
        (("-o", "a" * 5000 + ".md"), "File name too long."),
        (("-o", "a" * 300 + ".md"), "File name too long."),
        (("-o", "a\0.md"), "can't be the name of a file."),
        (("~nosuchuser/a", "--to", "md"), "No home directory is known for ~nosuchuser."),
        (("a" * 300, "--to", "md"), "File name too long."),
        (("-o", "a.md", "--node", "7000"), "There is no node 7000."),
    ],
)
def test_what_is_wrong_is_one_line(
    arguments: tuple[str, ...], told: str, tmp_path: Path, capsys, monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    from inspector.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(["export", *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=20)
@given(
    st.sampled_from(["session", "a.b", "trace"]), st.sampled_from([".trace", ".trace.zst", ".trace.zst", ""])
)
def test_a_documents_name_is_the_traces(name: str, end: str) -> None:
    from inspector.cli.subcommands.recordings import stem

    found = stem(Path(f"some/where/{name}{end}"))
    assert found == name or (name, end) == ("trace", "")


def forked() -> tuple[Recording, int]:
    """A recording whose current path has more steps than another branch, and a node of that branch."""
    made = session(2)
    fork = made.records[-1]
    assert isinstance(fork, Step)
    short = made.choose(fork.parent, next(each.id for each in fork.choice.candidates if each.id != fork.id))[
        -1
    ]
    assert isinstance(short, Step)
    made.move(fork.node)
    made.steps(6)
    recording = told(made)
    recording.timeline.recorded = True
    return recording, short.node


def test_the_picture_of_a_branch_with_fewer_steps_than_the_current_one_shows_that_branch() -> None:
    recording, node = forked()
    drawn = picture(line(recording, node), (120, 40))
    assert "of&#160;2&#160;steps" in drawn
    assert recording.timeline.tip == node


class ZMQInteractiveShell:
    """What a notebook's kernel is known by."""


def test_a_picture_is_made_in_a_notebook_too_and_shows_nothing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    display = types.ModuleType("IPython.display")
    display.display = lambda *values, **more: shown.append(values)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr("builtins.get_ipython", ZMQInteractiveShell, raising=False)

    async def cell() -> str:
        return picture(told(), (80, 24))

    assert asyncio.run(cell()).startswith("<svg")
    assert shown == []
