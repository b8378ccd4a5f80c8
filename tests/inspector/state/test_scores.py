"""Why a head looks there, as shares and in words: against the mean, against another key, and records that lie."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from engine.protocol import Floats, ScoreRead, ScoreWriter, floats
from inspector.documents.scores import (
    by_weight,
    in_words,
    key_shares,
    over_path,
    pair_shares,
    query_shares,
    score_writer_name,
    weights_of,
)
from inspector.state.inside import Answers
from tests.inspector.views.scores.reads import FACTS, read

LABELS = ("“␣a”", "“␣dog”", "“␣ran”", "“␣and”", "“␣saw”")


def test_shares_are_differences_from_the_mean_and_sum_to_that_of_the_score() -> None:
    made = read(7, 5)
    scores = made.scores.row()
    whole = scores[1] - sum(scores) / 4
    for shares in (key_shares(made, 1), query_shares(made, 1)):
        assert sum(share.value for share in shares) == pytest.approx(whole)
        sizes = [abs(share.value) for share in shares]
        assert sizes == sorted(sizes, reverse=True)
    assert [(share.name, share.value) for share in key_shares(made, 1)][:2] == [
        ("L1 h1", 2.25),
        ("L1 h2", 0.125),
    ]
    assert [(share.name, share.value) for share in pair_shares(made, 1)] == [
        ("embedding × L1 h1", 1.875), ("L1 MLP × L1 h2", 0.25),
    ]  # fmt: skip


def test_against_another_key() -> None:
    made = read(7, 5)
    assert sum(share.value for share in key_shares(made, 1, 0)) == pytest.approx(4.0 - 1.5)
    assert key_shares(made, 1, 0)[0].value == 3.0
    assert [(share.name, share.value) for share in pair_shares(made, 2, 1)] == [
        ("embedding × L1 h1", -2.5), ("L1 MLP × L1 h2", -1.0),
    ]  # fmt: skip


def test_a_sentence_says_who_wrote_what() -> None:
    made = read(7, 5)
    assert in_words(made, LABELS, 1) == (
        "L2 h1 looks at “␣dog” (87.49 %) mostly because L1 h1 wrote into it (+2.25 of +2.50)."
    )
    assert "looks at “␣ran” (0.97 %) rather little, above all because of what L1 h2 wrote" in in_words(
        made, LABELS, 2
    )
    assert "looks at “␣dog” (87.49 %) more than at “␣a” (7.18 %) mostly because" in in_words(
        made, LABELS, 1, 0
    )
    assert "token 5" in in_words(made, LABELS[:2], 4)


def test_names_are_those_of_contributions_and_printable() -> None:
    assert score_writer_name(ScoreWriter("mlp", 2, "mlp")) == "L3 MLP"
    assert score_writer_name(ScoreWriter("attention", 2, "self_attn", 1)) == "L3 h2"
    assert score_writer_name(ScoreWriter("constant", None, "")) == "biases"
    assert "\x1b" not in score_writer_name(ScoreWriter("other", 0, "\x1b[2Jx"))


@pytest.mark.parametrize(
    "lie",
    [
        {"weights": floats([0.5], (1,))},
        {"weights": floats([float("nan")] * 4, (4,))},
        {"keys": (0, 1, 2, 10**15)},
        {"keys": (0, 1, 1, 2)},
        {"keys": ()},
        {"by_key": Floats((10**12, 10**12), b"")},
        {"by_query": floats([float("inf")] * 20, (5, 4))},
        {"pairs": ((0, 99),)},
        {"scores": Floats((4,), b"")},
    ],
)
def test_a_record_that_lies_shows_less_and_ends_nothing(lie: dict[str, object]) -> None:
    made = replace(read(7, 5), **lie)
    assert len(over_path(made, 5)) == 5
    for key in (0, *by_weight(made)):
        for shares in (key_shares(made, key), query_shares(made, key), pair_shares(made, key)):
            assert all(abs(share.value) < 100 for share in shares)
        assert in_words(made, LABELS, key)
    assert bool(weights_of(made)) == bool(by_weight(made))


def test_views_keep_those_that_passed_of_their_own_model() -> None:
    answers = Answers()
    made = read(7, 5)
    failed = replace(FACTS, checks=(replace(FACTS.checks[1], error=1.0),))
    other = replace(made, head=1, facts=replace(FACTS, model="pocket, 4-bit"))
    for record in (made, replace(made, layer=0, facts=failed), other):
        answers.apply(record)
    assert answers.found(ScoreRead) == [made]
    assert answers.found(ScoreRead, second=True) == [other]
