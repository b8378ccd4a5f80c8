"""Two branches set against each other: a true alignment, figures that add up, both sides treated alike."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.protocol import Step
from inspector.documents.compare import (
    LEAST,
    MOST,
    Comparison,
    Match,
    Pair,
    Rule,
    Totals,
    _runs,
    compare,
    divergence_words,
    lines,
    matches,
    nearest,
    others,
    pairs,
    summary,
    totals,
)
from inspector.state.session_tree import Item
from inspector.state.timeline import Timeline
from inspector.views.compare import (
    COMPARED,
    TOKEN_CELLS,
    axis,
    cells_of,
    columns,
    difference,
    figure_lines,
    fitting,
    halves,
)
from tests.inspector.fakes import Session, next_step, session

IDS = st.lists(st.integers(0, 3), max_size=24)
"""Few ids, so that they meet often."""


# ---- alignment --------------------------------------------------------------------------------


def longest(left: Sequence[object], right: Sequence[object]) -> int:
    """Length of the longest common subsequence, as the textbook fills its table."""
    row = [0] * (len(right) + 1)
    for one in left:
        before = row[:]
        for place, other in enumerate(right, 1):
            row[place] = before[place - 1] + 1 if one == other else max(before[place], row[place - 1])
    return row[-1]


@given(IDS, IDS)
def test_meetings_are_common_runs_in_the_same_order(left: list[int], right: list[int]) -> None:
    here = there = 0
    for met in matches(left, right):
        assert met.length >= LEAST
        assert met.left >= here
        assert met.right >= there
        here, there = met.left + met.length, met.right + met.length
        assert left[met.left : here] == right[met.right : there]
        assert len(left[met.left : here]) == met.length


@given(IDS, IDS)
def test_meetings_seen_from_the_other_side_are_the_same(left: list[int], right: list[int]) -> None:
    assert matches(right, left) == tuple(each.mirrored for each in matches(left, right))


@given(IDS, IDS)
def test_no_way_to_align_them_has_more_windows(left: list[int], right: list[int]) -> None:
    def windows(ids: list[int]) -> list[tuple[int, ...]]:
        return [tuple(ids[n : n + LEAST]) for n in range(len(ids) - LEAST + 1)]

    most = longest(windows(left), windows(right))
    met = matches(left, right)
    assert bool(met) == bool(most)
    assert sum(each.length - LEAST + 1 for each in met) <= most


def test_a_text_that_goes_on_alike_meets_for_all_of_it() -> None:
    rest = list(range(100, 160))
    [met] = matches([1, 2, *rest], [3, *rest])
    assert met == Match(2, 1, 60)
    assert met.shift == -1


def test_a_loop_is_met_in_the_loop() -> None:
    [met] = matches([9, *[1, 2, 3] * 20], [8, 7, *[1, 2, 3] * 20])
    assert met == Match(1, 2, 60)


def test_two_tokens_alike_are_no_meeting() -> None:
    assert matches([1, 5, 6, 2], [3, 5, 6, 4]) == ()
    assert matches([], [1, 2, 3]) == ()


@given(IDS, IDS)
def test_every_token_stands_in_one_pair_in_order(left: list[int], right: list[int]) -> None:
    met = matches(left, right)
    made = list(pairs(len(left), len(right), met))
    assert [pair.left for pair in made if pair.left is not None] == list(range(len(left)))
    assert [pair.right for pair in made if pair.right is not None] == list(range(len(right)))
    joined = [pair for pair in made if pair.joined]
    assert all(left[pair.left] == right[pair.right] for pair in joined)  # type: ignore[index]
    assert len(joined) == sum(each.length for each in met)


def test_thousands_of_tokens_take_no_time_and_more_are_bounded() -> None:
    left = [n * 7919 % 2003 for n in range(20_000)]
    right = [5, *left]
    begun = time.perf_counter()
    [met] = matches(left, right)
    assert time.perf_counter() - begun < 2  # 0.06 s on a machine that has nothing else to do
    assert met == Match(0, 1, MOST - 1)


# ---- figures ----------------------------------------------------------------------------------


def paths(left: int, right: int, shared: int = 3) -> tuple[list[Item], list[Item]]:
    """Two paths of one tree that part after the prompt and so many steps."""
    made = session(shared)
    fork = made.node
    made.steps(left)
    timeline = made.timeline()
    one = list(timeline.items)
    taken = one[len(one) - left].id if left else None
    if right:
        candidate = next(c.id for c in made.tips[fork].candidates if c.id != taken)
        made.choose(fork, candidate)
        made.steps(right - 1)
    else:
        made.move(fork)
    return one, list(made.timeline().items)


def mirrored(pair: Pair) -> Pair:
    """A pair seen from the other side."""
    return Pair(pair.right, pair.left, pair.joined)


@pytest.mark.parametrize(("left", "right"), itertools.product((0, 1, 7, 20), repeat=2))
def test_both_sides_are_treated_alike(left: int, right: int) -> None:
    one, other = paths(left, right)
    here, there = compare(one, other), compare(other, one)
    assert here.shared == there.shared == len(one) - left == len(other) - right
    assert here.pairs == tuple(map(mirrored, there.pairs))
    assert here.matches == tuple(each.mirrored for each in there.matches)
    assert here.totals == there.totals[::-1]
    assert here.gap == pytest.approx([-gap for gap in there.gap])
    assert here.turns == there.turns


def test_the_gap_is_the_difference_of_the_sums() -> None:
    one, other = paths(20, 12)
    made = compare(one, other)
    assert len(made.gap) == 12
    for place, gap in enumerate(made.gap, 1):
        sums = [math.fsum(item.logprob or 0 for item in path[8 : 8 + place]) for path in (one, other)]
        assert gap == pytest.approx(sums[0] - sums[1], abs=1e-9)
    assert made.cumulative[0][-1] == pytest.approx(made.totals[0].logprob)
    assert made.cumulative[1][-1] == pytest.approx(made.totals[1].logprob)


def test_totals_are_those_of_the_tokens_after_the_divergence() -> None:
    one, other = paths(9, 4)
    steps = [item for item in one[8:] if isinstance(item, Step)]
    left = compare(one, other).totals[0]
    assert (left.tokens, left.unknown) == (9, 0)
    assert left.logprob == pytest.approx(sum(step.logprob for step in steps))
    assert left.perplexity == pytest.approx(math.exp(-left.logprob / 9))
    assert left.entropy_bits == pytest.approx(sum(step.choice.entropy_bits for step in steps) / 9)
    assert left.ms == pytest.approx(sum(step.ms.total for step in steps) / 9)


def test_what_is_unknown_is_counted_and_left_out() -> None:
    items = list(session(2).timeline().items)
    told = totals(items)
    assert (told.tokens, told.unknown) == (7, 1)  # the first token of a prompt has no logprob
    assert told.mean == pytest.approx(told.logprob / 6)
    nothing = totals([])
    assert (nothing.tokens, nothing.mean, nothing.perplexity, nothing.ms) == (0, None, None, None)


# ---- which branches there are -----------------------------------------------------------------


def forked(*places: int) -> tuple[Session, Timeline]:
    """Six steps, nodes 6 to 11, and a branch of one token, from node 12 on, in the place of some of them."""
    made = session(6)
    steps = made.timeline().steps
    for place in places:
        step = steps[place]
        made.choose(step.parent, next(c.id for c in step.choice.candidates if c.id != step.id))
    return made, made.timeline()


def test_a_single_branch_has_no_other() -> None:
    timeline = session(5).timeline()
    assert others(timeline) == []
    assert nearest(timeline) is None
    assert nearest(Timeline()) is None


def test_the_nearest_fork_before_the_token_looked_at_comes_first() -> None:
    made, timeline = forked(1, 4)
    assert others(timeline) == [11, 12]
    timeline.apply(made.move(11))  # from the story's own end both others part
    assert others(timeline) == [13, 12]
    assert nearest(timeline) == 13
    timeline.select(5 + 2)
    assert nearest(timeline) == 12
    timeline.select(0)
    assert nearest(timeline) == 12  # nothing parts before: the first fork after


def test_of_several_that_part_there_the_one_left_last_comes_first() -> None:
    made = session(3)
    fork = made.timeline().items[-1].parent  # type: ignore[union-attr]
    ids = [c.id for c in made.tips[fork].candidates if c.id != made.timeline().items[-1].id][:2]
    tips = [made.node, *(made.choose(fork, id)[-1].node for id in ids)]  # type: ignore[union-attr]
    timeline = made.timeline()
    assert timeline.tip == tips[2]
    assert nearest(timeline) == tips[1]
    timeline.apply(made.move(tips[0]))
    assert nearest(timeline) == tips[2]
    timeline.apply(made.move(tips[1]))
    assert nearest(timeline) == tips[0]


def test_what_was_taken_back_is_another_branch() -> None:
    made = session(4)
    tip, before = made.node, made.timeline().items[-3].node
    made.move(before)
    timeline = made.timeline()
    assert others(timeline) == [tip]
    assert nearest(timeline) == tip
    told = compare(timeline.items, timeline.tree.path(tip))
    assert [each.tokens for each in told.totals] == [0, 2]
    assert told.gap == ()


# ---- how it is told ---------------------------------------------------------------------------


def words(comparison: Comparison) -> list[str]:
    """The lines of words."""
    return [line.words for line in lines(comparison) if isinstance(line, Rule)]


def retold(shift: int, tail: int = 5) -> Comparison:
    """Two branches of which the right one says the same later, behind `shift` tokens more."""
    one, other = paths(tail + 1, shift + 1)
    again = other[:]
    for item in one[len(one) - tail :]:
        assert isinstance(item, Step)
        last = again[-1]
        again.append(replace(item, node=last.node + 1000, parent=last.node, position=last.position + 1))
    return compare(one, again)


def test_the_lines_say_where_they_diverge_and_match_again() -> None:
    assert words(retold(2)) == [
        "they diverge here, after 8 shared tokens",
        "they match again: the same 5 tokens, 2 later in the other",
    ]
    assert words(retold(0))[1] == "they match again: the same 5 tokens"
    one, other = paths(4, 4)
    parted = compare(one, other)
    if not parted.matches:
        assert summary(parted) == "no further run of 3 shared tokens"
    assert summary(retold(1)) == "1 match, 5 tokens"
    assert divergence_words(parted)[0] == "They diverge after 8 shared tokens", "wherever the cursor is"
    assert words(compare(one, one[:8])) == ["the other ends here, after 8 shared tokens"]
    assert words(compare(one, one)) == ["nothing differs: it is the same path"]


def test_the_turns_are_the_divergence_and_both_ends_of_a_match() -> None:
    made = retold(2)
    assert made.turns[0] == made.shared
    assert made.pairs[made.turns[1]].joined
    assert made.sum(made.pairs[0], 0) is None
    last = made.pairs[-1]
    assert made.sum(last, 1) == pytest.approx(made.totals[1].logprob)


def test_many_tokens_on_each_side_are_lines_at_once() -> None:
    one, other = paths(40, 40)
    for path in (one, other):
        timeline = Timeline()
        timeline.items = path
        pattern = [item for item in path if isinstance(item, Step)]
        for index in range(4000):
            path.append(next_step(timeline, pattern[index % len(pattern)]))
    other[8:] = [replace(item, node=item.node + 100_000) for item in other[8:]]
    begun = time.perf_counter()
    made = compare(one, other)
    assert len(list(lines(made))) >= 4000
    assert time.perf_counter() - begun < 2  # 0.05 s on a machine that has nothing else to do


@given(st.integers(0, 200))
def test_the_columns_fit_and_the_token_has_room(width: int) -> None:
    forms = [*(("#", "p", "bits", "rank", "sum")[:many] for many in (5, 4, 3, 2)), ("p",)]
    roomy = (form for form in forms if width - cells_of(form) >= TOKEN_CELLS)
    assert fitting(width) == next(roomy, ("p",))


# ---- the chart --------------------------------------------------------------------------------


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30), st.integers(2, 20))
def test_the_chart_holds_both_extremes(values: list[float], height: int) -> None:
    above, below, line = parts = halves(values, height)
    assert above + below == height
    assert max(values) <= above * line * (1 + 1e-9) or max(values) <= 0
    assert -min(values) <= below * line * (1 + 1e-9) or min(values) >= 0
    assert all(0 <= row < height for row in axis(values, parts))


@given(st.integers(1, 500), st.integers(1, 80))
def test_the_columns_go_through_all_steps_in_order(steps: int, cells: int) -> None:
    shown = columns(steps, cells)
    assert len(shown) <= cells
    assert shown == sorted(shown)
    assert shown[-1] == steps - 1
    if steps <= cells:
        assert sorted(set(shown)) == list(range(steps))


@given(st.floats(-9999, 9999), st.sampled_from([0, 2]))
def test_a_large_difference_has_fewer_decimals(value: float, digits: int) -> None:
    assert len(difference(value, digits)) < 7


@pytest.mark.parametrize("width", [22, 37, 54, 80])
@given(st.floats(-9999, -1), st.floats(-9999, -1))
def test_figures_never_touch(width: int, left: float, right: float) -> None:
    both = [Totals(3, 0, value, value, math.exp(min(-value, 700.0)), 1.0, 9.0) for value in (left, right)]
    for figure, line in zip(COMPARED, list(figure_lines(COMPARED, *both, width))[1:], strict=True):
        texts = [figure.format(figure.value(side)) for side in both]
        words = " ".join(texts).split()
        assert "".join(line).removeprefix(figure.name).split()[: len(words)] == words
        assert len("".join(line).split()) >= len(figure.name.split()) + len(words) + 1


@given(st.floats(0.01, 90), st.floats(0.01, 90))
def test_the_gap_is_that_of_the_numbers_on_both_sides(left: float, right: float) -> None:
    both = (Totals(3, 0, -value, -value, value, value, value) for value in (left, right))
    for _, sides, gap in list(figure_lines(COMPARED, *both, 54))[1:]:
        one, other, differs = (float(text.replace("−", "-")) for text in (*sides.split(), gap))
        assert differs == pytest.approx(one - other, abs=0.06 * ("." in gap))
        assert len(gap.partition(".")[2]) == min(len(text.partition(".")[2]) for text in sides.split())


def test_a_run_that_overlaps_the_one_before_begins_behind_it() -> None:
    first, second = [(n, n) for n in range(3)], [(1 + n, 20 + n) for n in range(8)]
    found = list(_runs([*first, *second]))
    assert [(each.left, each.right, each.length) for each in found] == [(0, 0, 5), (5, 24, 6)]
