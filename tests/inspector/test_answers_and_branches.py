"""An answer about a step is about that step's own token: asked for again, shown, exported and recorded, whatever other
branches took in its place meanwhile, and wherever the session stands."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine import protocol
from engine.protocol import Record
from inspector.api import Branch
from inspector.display import quoted, token_label
from inspector.documents.exports import EXPORTS
from inspector.export.documents import FORMATS, evidence
from inspector.export.recording import Recording, line, read, snapshot
from inspector.state.inside import KEYS, Answers
from inspector.state.session_tree import SessionTree
from inspector.version import program
from mlx_inspector import Session, open
from tests.inspector.replays import on_recording

LENGTH, SIDE = 9, 3
"""Steps of the main branch, and of another."""


@pytest.fixture(scope="module", autouse=True)
def held() -> Iterator[None]:
    """A session on the bundled model, whose weights all others then share."""
    with open("pocket", prompt="A"):
        yield


def _contributions(branch: Branch, step: protocol.Step) -> Record:
    other = next(each.id for each in step.choice.candidates if each.id != step.id)
    asked = protocol.Attribute(branch.node, (step.id, other))
    return branch._line.do(asked).answer(protocol.AttributionRead)


def _gradients(branch: Branch, step: protocol.Step) -> Record:
    return branch.gradients(integrated=False).record


def _sweep(branch: Branch, step: protocol.Step) -> Record:
    asked = protocol.SweepHeads(branch.node, step.id, heads=())
    return branch._line.do(asked).answer(protocol.HeadsSwept)


TOOLS = {"contributions": _contributions, "gradients": _gradients, "sweep": _sweep}
"""What explains a token."""


def numbers(answer: Record) -> object:
    """What an answer says, without what it cost."""
    match answer:
        case protocol.AttributionRead():
            return [(each.id, round(each.logit, 3)) for each in answer.tokens], round(answer.total, 3)
        case protocol.GradientsRead():
            return [each.id for each in answer.tokens], [round(each, 3) for each in answer.values]
        case protocol.HeadsSwept():
            return answer.token, [(each.intervention, round(each.logit_change, 3)) for each in answer.units]
    raise AssertionError(answer)


def recording_of(session: Session, branch: Branch) -> Recording:
    """What a document of a branch is made of."""
    own = session._line
    return with_parts(line(snapshot(own.timeline, own.settings, own.load, program()), branch.node, on=False))


def with_parts(recording: Recording) -> Recording:
    recording.parts = EXPORTS
    return recording


def articles(made: Sequence[Element]) -> dict[str, list[str]]:
    """By the heading of an article, the texts of its sections."""
    return {
        "".join(next(article.iter("h3")).itertext()): [
            "".join(section.itertext()) for section in article.iter("section")
        ]
        for article in made
        if article.get("data-row") is not None
    }


def label(text: str) -> str:
    return quoted(token_label(text))


def heading(step: protocol.Step, tree: SessionTree) -> str:
    """Of the article with what explains a step's token."""
    return f"What came after {label(tree.nodes[step.parent].text)}: {label(step.text)}"


def documents(recording: Recording) -> tuple[str, str]:
    """The text and the table of a branch."""
    return FORMATS["txt"](recording), FORMATS["csv"](recording)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    place=st.integers(0, LENGTH - 1),
    rank=st.integers(1, 3),
    tools=st.permutations(list(TOOLS)),
    goes_back=st.booleans(),
)
def test_every_entrance_tells_the_same_of_a_step_after_a_branch_in_its_place(
    tmp_path_factory: pytest.TempPathFactory, place: int, rank: int, tools: list[str], goes_back: bool
) -> None:
    prompt = "Tim had a red kite. Sue had a blue ball. Tim played with"
    with open("pocket", prompt=prompt, temp=0.8, seed=7) as s:
        main = s.run(LENGTH).wait()
        step = main.steps[place].record
        before = {name: TOOLS[name](main.at(place + 1), step) for name in tools}
        drawn = main.at(place + 1).sampler().record.next
        own = documents(recording_of(s, main))

        other = [each.id for each in step.choice.candidates if each.id != step.id][rank - 1]
        s.set(temp=1.5)
        side = s.at(place + 1).take(other).run(SIDE).wait()
        (twin,) = [each.record for each in side.steps[place : place + 1]]
        beside = {name: TOOLS[name](side.at(place + 1), twin) for name in tools}
        if goes_back:
            main.run(1).wait()

        # Python: the same question has the same answer
        for name in tools:
            assert numbers(TOOLS[name](main.at(place + 1), step)) == numbers(before[name]), name
            assert numbers(TOOLS[name](side.at(place + 1), twin)) == numbers(beside[name]), name
        again = main.at(place + 1).sampler().record.next
        assert (again.picked, again.draw) == (drawn.picked, drawn.draw)
        # the state that screens and documents read
        seen = s._line.timeline.of(Answers)
        for of, told in ((step, before), (twin, beside)):
            found = (
                *(
                    each
                    for kind in (protocol.AttributionRead, protocol.GradientsRead)
                    for each in seen.found(kind)
                    if (each.node, each.tokens[0].id) == (of.parent, of.id)
                ),
                *(
                    each
                    for each in seen.found(protocol.HeadsSwept)
                    if (each.node, each.token) == (of.parent, of.id)
                ),
            )
            names = ("contributions", "gradients", "sweep")
            for name, record in zip(names, found, strict=True):
                assert numbers(record) == numbers(told[name]), name
        # documents of either branch, and of the session as it was saved and is opened again
        tree = s._line.timeline.tree
        path = tmp_path_factory.mktemp("saved") / "x.trace"
        s.save(path)
        whole = with_parts(read(path))
        for branch, of in ((main, step), (side, twin)):
            here = recording_of(s, branch)
            made = articles(evidence(here))
            assert next(iter(made)) == heading(of, tree)  # what is of the branch itself comes first
            report = FORMATS["md"](here).replace("\\", "")
            for each in (step, twin):
                words = " ".join(made[heading(each, tree)])
                assert f"Why {label(each.text)} rather than" in words
                assert f"Tokens behind {label(each.text)}" in words
                assert f"logit of {token_label(each.text)}" in words
                _, found, after = report.partition(f"### {heading(each, tree)}")
                assert found
                assert f"Why {label(each.text)} rather than" in after.split("\n### ")[0]
            page = FORMATS["html"](here)
            for section in re.findall(r'<section class="look"[^>]*data-token="(\d+)"[^>]*>', page):
                assert int(section) in (step.id, twin.id)
            assert articles(evidence(line(whole, branch.node, on=False))) == made
            assert documents(whole) == documents(here)
        assert documents(recording_of(s, main)) == own


def paths_of(page: str) -> list[list[int]]:
    """The nodes of each path of a page, in the order in which they can be chosen."""
    found = re.search(r'id="data"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data = json.loads(found[1])
    tokens = data["tokens"]
    paths = []
    for each in data["paths"]:
        row, nodes = each["tip"], []
        while row >= 0:
            nodes.append(tokens["node"][row])
            row = tokens["parent"][row]
        paths.append(nodes[::-1])
    return paths


def test_a_document_of_a_branch_is_about_that_branch_wherever_the_session_went(tmp_path: Path) -> None:
    with open("pocket", prompt="Once upon a time", temp=0.8, seed=7) as s:
        main = s.run(20).wait()
        here, files = s.at(13), [tmp_path / "x.trace", tmp_path / "y.trace"]
        path, whole = ([item.node for item in each._path()] for each in (here, main))
        assert paths_of(here.to_html()) == [path, whole]
        side = s.at(13).take(" cat").run(5).wait()
        beside = [item.node for item in side._path()]
        assert paths_of(here.to_html()) == [path, whole, beside]
        assert paths_of(side.to_html()) == [beside, whole]
        s.save(files[0])
        longer = main.run(1).wait()  # the session stands on the first branch again
        s.save(files[1])
        assert paths_of(here.to_html()) == [path, [item.node for item in longer._path()], beside]
        assert paths_of(side.to_html())[0] == beside
        for name in ("md", "csv", "txt"):
            for node in (side.node, beside[-3]):
                one, other = (FORMATS[name](line(read(file), node)) for file in files)
                assert "cat" in one
                assert one == other or name == "md", "a report lists the other branches, too"
        rows = [csv.DictReader(io.StringIO(FORMATS["csv"](line(read(file), here.node)))) for file in files]
        assert [[int(row["node"]) for row in each] for each in rows] == [
            whole,
            [item.node for item in longer._path()],
        ]


def test_a_step_is_explained_by_the_settings_that_it_was_picked_with() -> None:
    with open("pocket", prompt="Once upon a time", temp=0.8, seed=7) as s:
        s.run(10).wait()
        step = s.steps[6]
        before = s.at(7).sampler().record
        s.set(temp=0.0, top_k=3)
        s.at(7).take(" cat").run(2).wait()
        after = s.at(7).sampler().record
        assert (after.next.picked, after.next.draw) == (step.id, before.next.draw)
        assert [each.name for each in after.columns] == [each.name for each in before.columns]


def test_screens_know_an_answer_by_the_token_that_it_explains() -> None:
    with open("pocket", prompt="Once upon a time", temp=0.8, seed=7) as s:
        s.run(6).wait()
        step = s.steps[3].record
        swept, slopes = _sweep(s.at(4), step), _gradients(s.at(4), step)
        assert isinstance(swept, protocol.HeadsSwept)
        assert isinstance(slopes, protocol.GradientsRead)
        assert KEYS[protocol.HeadsSwept](swept) == (step.parent, step.id, "token", None)
        assert KEYS[protocol.GradientsRead](slopes)[:2] == (
            step.parent,
            tuple(each.id for each in slopes.tokens),
        )


async def test_a_recording_shows_at_each_branch_what_explains_its_own_token(tmp_path: Path) -> None:
    place = 4
    with open("pocket", prompt="Once upon a time", temp=0.8, seed=7) as s:
        main = s.run(place + 2).wait()
        step = main.steps[place].record
        other = next(each.id for each in step.choice.candidates if each.id != step.id)
        side = s.at(place + 1).take(other).run(1).wait()
        twin = side.steps[place].record
        for branch, of in ((main, step), (side, twin)):
            rare = step.choice.candidates[-1].id  # no screen compares with it unless it is asked to
            s._line.do(protocol.Attribute(of.parent, (of.id, rare)))
            branch.at(place + 1).gradients(against=rare, integrated=False)
            _sweep(branch.at(place + 1), of)
        s.save(tmp_path / "x.trace")
    async with on_recording(tmp_path / "x.trace") as rig:
        for end, of in ((main.node, step), (side.node, twin)):
            rig.timeline.visit(end)
            rig.timeline.select([item.node for item in rig.timeline.items].index(of.node))
            rig.app.main.changed()
            await rig.pilot.pause()
            for action in ("attribution", "gradients", "interventions"):
                await rig.do(action)
                answer = rig.app.top.answer  # type: ignore[attr-defined]
                told = answer.token if isinstance(answer, protocol.HeadsSwept) else answer.tokens[0].id
                assert told == of.id, action
                await rig.press("escape")
