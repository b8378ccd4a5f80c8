"""The token tree against a plain dictionary of paths."""

from __future__ import annotations

import tracemalloc

from hypothesis import example, given
from hypothesis import strategies as st

from engine.tree import ROOT, TokenTree, aligned, common_prefix

PATHS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=12)


def grown(paths: list[list[int]]) -> tuple[TokenTree, dict[tuple[int, ...], int]]:
    tree = TokenTree()
    nodes: dict[tuple[int, ...], int] = {(): ROOT}
    for path in paths:
        for end in range(1, len(path) + 1):
            nodes[tuple(path[:end])] = tree.add(nodes[tuple(path[: end - 1])], path[end - 1], "sampled")
    return tree, nodes


@given(PATHS)
def test_one_path_is_one_node(paths: list[list[int]]) -> None:
    tree, nodes = grown(paths)
    assert len(tree) == len(nodes) == len(set(nodes.values()))
    for path, node in nodes.items():
        assert tuple(tree.tokens(node)) == path
        assert tree[node].depth == len(path)
        assert tree.tail(node, 3) == list(path[-3:])


@given(PATHS, st.data())
def test_the_common_node_is_the_longest_shared_beginning(paths: list[list[int]], data: st.DataObject) -> None:
    tree, nodes = grown(paths)
    one, other = (data.draw(st.sampled_from(sorted(nodes))) for _ in range(2))
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    assert tree.common_ancestor(nodes[one], nodes[other]) == nodes[one[:shared]]


def test_the_completion_begins_after_the_prompt_or_where_it_was_left() -> None:
    tree = TokenTree()
    last = tree.add_prompt(ROOT, [5, 6, 7])[-1]
    assert tree[tree.add(last, 9, "sampled")].start == 3
    inside = tree[last].parent
    assert tree[tree.add(tree.add(inside, 8, "chosen"), 8, "chosen")].start == 2


def test_a_token_that_is_taken_again_follows_the_prompt_that_was_read_since() -> None:
    tree = TokenTree()
    prompt = tree.add_prompt(ROOT, [5, 6])[-1]
    first = tree.add(prompt, 7, "sampled")
    taken = tree.add(first, 8, "sampled")
    assert tree.chunks(taken) == ((0, 1),)
    assert tree[taken].decoded == 2
    tree.add_prompt(ROOT, [5, 6, 7])
    assert tree.chunks(taken) == ((0, 1),)  # what was computed of it was computed so
    assert tree.add(first, 8, "chosen") == taken
    assert tree.chunks(taken) == ((0, 2),)
    assert (tree[taken].start, tree[taken].decoded, tree[taken].origin) == (3, 1, "sampled")


@given(st.text("ab"), st.text("ab"))
def test_the_common_beginning_is_the_longest_that_both_have(one: str, other: str) -> None:
    shared = common_prefix(one, other)
    assert one[:shared] == other[:shared]
    assert shared == min(len(one), len(other)) or one[shared] != other[shared]
    assert common_prefix(iter(one), list(other)) == shared


def test_a_token_of_a_long_path_takes_little_memory() -> None:
    tree, node = TokenTree(), ROOT
    tracemalloc.start()
    for token in range(10_000):
        node = tree.add(node, token % 100, "sampled")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 10_000 * 300


def test_children_are_found_by_token_and_by_what_they_were_computed_under() -> None:
    tree = TokenTree()
    top = tree.add(ROOT, 5, "prompt")
    plain, other = tree.add(top, 7, "sampled"), tree.add(top, 8, "sampled")
    held = tree.add(top, 7, "sampled", under=1)
    assert (tree.child(top, 7), tree.child(top, 8), tree.child(top, 7, 1)) == (plain, other, held)
    assert (tree.child(top, 9), tree.child(top, 8, 1), tree.child(held, 7)) == (None, None, None)
    assert tree.add(top, 7, "chosen") == plain
    assert tree.add(top, 7, "chosen", under=1) == held


PATH = st.lists(st.integers(0, 3), min_size=1, max_size=14)


@given(PATH, PATH)
@example([1, 1], [1, 1, 1])
def test_an_alignment_rises_on_both_sides_and_is_the_same_from_either(
    one: list[int], other: list[int]
) -> None:
    pairs = aligned(one, other)
    assert pairs == sorted(pairs)
    assert len({place for place, _ in pairs}) == len({partner for _, partner in pairs}) == len(pairs)
    assert all(0 <= place < len(one) and 0 <= partner < len(other) for place, partner in pairs)
    assert [partner for _, partner in pairs] == sorted(partner for _, partner in pairs)
    assert pairs[-1] == (len(one) - 1, len(other) - 1)
    assert aligned(other, one) == [(partner, place) for place, partner in pairs]
    if len(one) == len(other):
        assert pairs == [(place, place) for place in range(len(one))]


def test_replaced_tokens_are_matched_from_their_end() -> None:
    assert aligned([1, 2, 3, 4, 5], [1, 9, 8, 7, 4, 5]) == [(0, 0), (1, 2), (2, 3), (3, 4), (4, 5)]
    assert aligned([1, 2, 9, 3, 7, 4], [1, 2, 3, 8, 7, 4, 4]) == [(0, 0), (1, 1), (3, 2), (4, 4), (5, 6)]


def test_what_is_too_long_to_compare_is_matched_from_its_end() -> None:
    one, other = [1, *range(10, 5000), 2], [1, *range(9, 5000), 2]
    pairs = aligned(one, other)
    assert pairs[0] == (0, 0)
    assert pairs[1:] == [(place, place + 1) for place in range(1, len(one))]
