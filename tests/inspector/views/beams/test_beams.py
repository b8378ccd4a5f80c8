"""What is known of a beam search, and what it looks like after each of its steps."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from engine.protocol import BeamEnded, BeamStep, Ended, Failure, Record
from inspector.documents.beams import (
    beside_greedy,
    endings,
    entries,
    excerpt,
    lattice,
    passing,
    pieces,
    settings_phrase,
    state_phrase,
)
from inspector.state.beams import BeamHistory
from inspector.views.beams import likelihood
from tests.inspector.fake_beams import Maker, search
from tests.inspector.fakes import session

START = 100


def known(records: list[Record]) -> BeamHistory:
    beams = BeamHistory()
    for record in records:
        beams.apply(record)
    return beams


@pytest.fixture
def beams() -> BeamHistory:
    return known(search(START))


def user_message(beams: BeamHistory, at: int) -> list[tuple[str, int | None, str]]:
    return [
        (entry.kind, entry.place, "".join(token.text for token in entry.path if not token.ends).strip())
        for entry in entries(beams, at)
    ]


def drawn(beams: BeamHistory, at: int, rows: int = 20, cells: int = 100, place: int = 0) -> list[str]:
    found = entries(beams, at)
    return [
        "".join(text for text, _ in bits).rstrip()
        for bits, _ in lattice(beams, found, at, rows, cells, found[place].node)
    ]


# ---- nodes ----------------------------------------------------------------------------------------


def test_every_node_tells_how_it_ended(beams: BeamHistory):
    states = {node - START: each.state for node, each in beams.nodes.items()}
    assert states == {1: "grown", 2: "pruned", 3: "grown", 4: "grown", 5: "grown", 6: "grown", 7: "pruned", 8: "grown",
                      9: "pruned", 10: "finished", 11: "grown", 12: "finished"}  # fmt: skip
    assert {node - START: each.rank for node, each in beams.nodes.items() if each.rank} == {12: 1, 10: 2}
    assert [node - START for node, each in beams.nodes.items() if each.greedy] == [1, 4, 6, 8, 10]
    assert [node - START for node, each in beams.nodes.items() if each.ends] == [7, 10]


def test_a_node_fell_out_with_the_last_that_grew_from_it(beams: BeamHistory):
    fell = {node - START: each.fell for node, each in beams.nodes.items() if each.fell is not None}
    assert fell == {2: 2, 9: 5, 7: 6, 5: 6, 3: 6}
    assert [node - START for node in beams.fallen] == [2, 9, 7]


def test_the_last_token_of_a_hypothesis_is_worked_out_from_it(beams: BeamHistory):
    far, end = beams.nodes[START + 12], beams.nodes[START + 10]
    assert (far.text, far.parent, far.length) == (" far", START + 11, 6)
    assert far.logprob == pytest.approx(-0.05)
    assert (end.text, end.parent) == ("<eos>", START + 8)
    assert "".join(each.text for each in beams.path(START + 12)) == " the dog ran off too far"


def test_another_search_keeps_the_nodes_and_forgets_the_ranks():
    beams = known([*search(START)[:4], *search(500)[:2]])
    assert beams.nodes[START + 6].state == "left"
    assert not any(each.greedy for node, each in beams.nodes.items() if node < 500)
    assert beams.search.opened.node == 500
    assert beams.fallen == []
    assert beams.path(START + 6) == []
    assert beams.path(501)[0].text == " the"


def test_a_prompt_forgets_them():
    beams, made = known(search(START)), session(0)
    for record in made.open():
        beams.apply(record)
    assert (beams.nodes, beams.search, beams.fallen) == ({}, None, [])


def test_a_failure_of_a_step_ends_the_search_and_one_before_it_begins_does_not():
    failure = Failure("GoOnBeams", "No memory.", "Take a smaller width.")
    beams = known([*search(START)[:3], Ended("SearchBeams"), failure])
    assert beams.search.failure is failure
    assert beams.search.over
    assert beams.refused is None
    refused = Failure("SearchBeams", "There is no prompt.", "Give one.")
    beams = known([refused])
    assert beams.refused is refused
    beams.apply(search(START)[0])
    assert beams.refused is None
    first = Failure("SearchBeams", "No memory.", "")
    beams.apply(first)
    assert beams.search.failure is first


# ---- after each step --------------------------------------------------------------------------------


def test_the_list_after_each_step(beams: BeamHistory):
    assert user_message(beams, 1) == [("live", 1, "the"), ("live", 2, "a")]
    assert user_message(beams, 2) == [("live", 1, "the dog"), ("live", 2, "the cat"), ("fell", None, "a")]
    assert user_message(beams, 4) == [
        ("live", 1, "the dog ran off"), ("live", 2, "the cat sat down"), ("finished", 1, "the cat sat"),
        ("fell", None, "a"),
    ]  # fmt: skip
    assert user_message(beams, 5) == [
        ("live", 1, "the dog ran off too"), ("finished", 1, "the dog ran off"), ("finished", 2, "the cat sat"),
        ("fell", None, "the cat sat down"), ("fell", None, "a"),
    ]  # fmt: skip
    assert user_message(beams, 6) == [
        ("finished", 1, "the dog ran off too far"),
        ("finished", 2, "the dog ran off"),
    ]


def test_an_earlier_step_looks_as_it_did_then(beams: BeamHistory):
    for at in range(1, 6):
        assert user_message(beams, at) == user_message(known(search(START)[: at + 1]), at)


def test_greedy_is_marked_and_stands_apart_where_it_is_no_beam():
    beams = known(search(START))
    assert [entry.greedy for entry in entries(beams, 2)] == [True, False, False]
    assert [entry.greedy for entry in entries(beams, 6)] == [False, True]
    made = Maker(START)
    alone = replace(made.grow(made.root, 13, " far", -3.0, -1))
    records = search(START)[:2]
    beams = known([records[0], replace(records[1], greedy=alone)])
    assert [(entry.kind, entry.place) for entry in entries(beams, 1)] == [
        ("live", 1),
        ("live", 2),
        ("greedy", None),
    ]
    ended = search(START)
    other = made.hypothesis(alone)
    beams = known([ended[0], replace(ended[1], greedy=alone), *(replace(step, greedy=None) for step in ended[2:-1]),
                   replace(ended[-1], greedy=other)])  # fmt: skip
    assert user_message(beams, 6)[-1] == ("greedy", None, "far")


def test_equal_texts_tell_the_token_that_ended_them():
    made = Maker(START)
    one, two = made.grow(made.root, 1, "<a>", -1.0, -1), made.grow(made.root, 2, "[b]\x1b", -2.0, -1)
    alike = [made.hypothesis(one, "<a>"), made.hypothesis(two, "[b]\x1b")]
    assert endings(alike) == ["eos <a>", "eos [b]␛"]
    beams = known([search(START)[0], BeamStep(1, (), (), tuple(alike), one, 0, 1.0, True),
                   BeamEnded(tuple(alike), alike[0], (), 1, "length", 1.0)])  # fmt: skip
    assert [state_phrase(entry) for entry in entries(beams, 1)] == ["greedy, <a>", "[b]␛"]
    assert endings([alike[0], replace(alike[1], text="other")]) == ["eos", "eos"]


def test_words_for_how_a_beam_stands(beams: BeamHistory):
    assert [state_phrase(entry) for entry in entries(beams, 2)] == [
        "greedy, live",
        "live",
        "pruned at step 2",
    ]
    assert [state_phrase(entry, short=True) for entry in entries(beams, 2)] == ["greedy", "live", "pruned 2"]
    assert [state_phrase(entry) for entry in entries(beams, 6)] == ["limit", "greedy, eos"]
    assert settings_phrase(beams.search) == "width 2 · max tokens 6 · length penalty 1 · early stopping off"


def test_beside_greedy_tells_the_parting_and_the_gap(beams: BeamHistory):
    live = entries(beams, 4)
    assert beside_greedy(beams, live[0], 4) == "Beam 1 is what greedy decoding says, token for token"
    told = beside_greedy(beams, live[1], 4)
    # -0.2 -0.7 -0.1 -1.0 = -2.0 against -0.2 -0.6 -0.15 -0.2 = -1.15
    assert told == (
        "Beam 2 diverges from greedy at token 2: “␣cat” −0.70, greedy “␣dog” −0.60; "
        "0.850 behind in logprob after 4 tokens"
    )
    best = entries(beams, 6)[0]
    # " too" -0.5 against "<eos>" -0.3, after five tokens each
    assert beside_greedy(beams, best, 6) == (
        "Hypothesis 1 diverges from greedy at token 5: “␣too” −0.50, greedy “<eos>” −0.30; "
        "0.200 behind in logprob after 5 tokens"
    )


def test_the_bar_compares_probabilities_of_one_length_and_scores_of_others(beams: BeamHistory):
    live = entries(beams, 4)
    best = max(entry.last.score for entry in live)
    assert likelihood(live[0], best) == 1.0
    assert likelihood(live[1], best) == pytest.approx(math.exp(-2.0 + 1.15))
    shares = [likelihood(entry, best) for entry in sorted(live, key=lambda each: -each.last.score)]
    assert all(0 < share <= 1 for share in shares)


# ---- what stands out ----------------------------------------------------------------------------------


def test_what_only_one_beam_says_stands_out_and_where_others_go_another_way(beams: BeamHistory):
    found = entries(beams, 4)
    through = passing(found)
    assert pieces(found[0], through) == [(" the", False), (" dog", True), (" ran", True), (" off", True)]
    # two go through cat, and one past it; both of them say sat
    assert pieces(found[1], through) == [(" the", False), (" cat", True), (" sat", False), (" down", True)]


def test_greedy_beside_and_what_fell_out_take_nothing_from_what_stands_out(beams: BeamHistory):
    found = entries(beams, 2)
    assert passing(found)[START] == 2
    alone = [replace(found[0], kind="greedy"), *found[1:]]
    assert passing(alone)[START] == 1


def test_a_window_keeps_the_places_that_stand_out():
    text = [(" one", False), (" two", False), (" three", True), (" four", True)]
    assert excerpt(text, 40) == text
    assert excerpt(text, 18) == [("…", False), (" two", False), (" three", True), (" four", True)]
    assert excerpt(text, 12) == [("…", False), (" three", True), (" four", True)]
    assert excerpt(text, 8) == [("…", False), (" three", True), ("…", False)]
    forks = [
        (" a", False),
        (" b", True),
        *[(" c", False)] * 20,
        (" d", True),
        *[(" e", False)] * 20,
        (" f", True),
    ]
    assert "".join(piece for piece, _ in excerpt(forks, 18)) == "… b… d… e e e e f"
    assert "".join(piece for piece, _ in excerpt(forks, 8)) == "… d… e f"


@given(
    st.lists(st.tuples(st.sampled_from([" a", "bc", "狐狸", "", " long word"]), st.booleans()), min_size=1),
    st.integers(1, 60),
)
def test_a_window_is_never_too_wide_and_keeps_the_order(text: list[tuple[str, bool]], cells: int):
    shown = excerpt(text, cells)
    assert sum(cell_len(piece) for piece, _ in shown) <= cells
    kept = iter(text)
    assert len(shown) == 1 or all(piece in kept for piece in shown if piece[0] != "…")


# ---- the tree of columns --------------------------------------------------------------------------------


def test_the_tree_after_a_step(beams: BeamHistory):
    assert drawn(beams, 2) == [
        "     1      2",
        "● ┬─ the ┬─ dog 1 −0.400 greedy",
        "  │      ╰─ cat 2 −0.450",
        "  ╰─ a   ✗ 2",
    ]
    assert drawn(beams, 5) == [
        "     1      2      3      4       5",
        "● ┬─ the ┬─ dog ── ran ── off ─┬─■    1 −0.290 greedy",
        "  │      │                     ╰─ too 1 −0.330",
        "  │      ╰─ cat ── sat ┬─■     2 −0.475",
        "  │                    ╰─ down ✗ 5",
        "  ╰─ a   ✗ 2",
    ]


def test_the_tree_begins_where_there_is_room_for_it(beams: BeamHistory):
    lines = drawn(beams, 5, cells=45)
    assert lines[0].split() == ["3", "4", "5"]
    assert lines[1].startswith("… ── ran ── off ─┬─■")
    assert all(cell_len(line) <= 45 for line in lines)
    assert not any("✗ 2" in line for line in lines)


def test_what_fell_out_first_goes_first_where_rows_are_few(beams: BeamHistory):
    lines = drawn(beams, 5, rows=5)
    assert len(lines) == 5
    assert "✗ 5" in lines[4]


def test_the_highlighted_path_has_a_colour_of_its_own(beams: BeamHistory):
    found = entries(beams, 5)
    lines = lattice(beams, found, 5, 20, 100, found[2].node)
    inks = {text.strip(" ─"): ink for bits, _ in lines for text, ink in bits if text.strip(" ─┬╰│├")}
    assert inks["the"] == inks["cat"] == inks["sat"] == "accent"
    assert inks["down"] == inks["a"] == "faint"
    assert inks["off"] == inks["too"] == ""


def test_hostile_tokens_keep_their_columns():
    made = Maker(START)
    texts = ("[/x]\x1b", "狐狸", "a\nb", "", "   ", "‮evil")
    live = tuple(
        made.grow(made.root, number, text, -0.1 * number, number - 1) for number, text in enumerate(texts, 1)
    )
    records = search(START)
    beams = known([records[0], replace(records[1], live=live, greedy=live[0])])
    lines = drawn(beams, 1)
    assert "\x1b" not in "".join(lines)
    column = {cell_len(line[: line.rindex(" −")].rstrip("0123456789 ")) for line in lines[1:]}
    starts = {cell_len(line[: line.index("−")]) for line in lines[1:]}
    assert len(starts) == 1, column
