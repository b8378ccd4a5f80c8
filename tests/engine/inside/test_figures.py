"""Figures of the bundled model that were computed outside of the program, with the same weights in the file's type."""

from __future__ import annotations

import pytest

from engine.inside.attention import read_attention
from engine.inside.lens import attribute, read_lens
from engine.model.load import load
from engine.protocol import Attribute, LensCell, LensColumn, ReadAttention, ReadLens
from engine.session.session import Session
from engine.settings import LoadSettings, Settings
from tests.engine.inside.looking import answer

PARK = (
    "Once upon a time, there was a little girl named Lily. She had a dog named Max. One day, "
    "Lily went to the park with"
)


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(load(LoadSettings(dtype="file")), Settings())


def read(session: Session, prompt: str) -> list[tuple[str, float]]:
    """What the lens says of the last token: the first token of each layer, in percent."""
    list(session.prefill(prompt, session.encode(prompt)))
    column = answer(read_lens(session, ReadLens(session.node, positions=1))).columns[-1]
    return [(cell.top[0].text, cell.top[0].prob * 100) for cell in column.cells]


def test_lily_leads_at_the_last_layers_and_the_noun_decides(session: Session) -> None:
    named = {
        noun: read(session, f"Once upon a time, there was a little {noun} named") for noun in ("girl", "dog")
    }
    assert named["girl"][0][0] == " named"
    assert named["girl"][7:] == [
        (" Lily", pytest.approx(48.5, abs=0.5)),
        (" Lily", pytest.approx(37.3, abs=0.5)),
    ]
    assert named["dog"][7:] == [(" Max", pytest.approx(60, abs=1)), (" Spot", pytest.approx(51, abs=1))]


def test_a_head_of_layer_6_looks_at_the_noun(session: Session) -> None:
    for noun in ("girl", "boy", "dog"):
        read(session, f"Once upon a time, there was a little {noun} named")
        looked = answer(read_attention(session, ReadAttention(session.node)))
        row = looked.layers[5].over(0, looked.tokens)
        place = max(range(looked.tokens), key=row.__getitem__)
        node = session.tree.nodes(session.node)[place]
        assert session.tokens.text(session.tree[node].token, b"")[0] == f" {noun}"
        assert row[place] > 0.985


def test_the_kite_is_looked_at_and_the_ball_is_said(session: Session) -> None:
    read(session, "Tim had a red kite. Sue had a blue ball. Tim played with his red")
    looked = answer(read_attention(session, ReadAttention(session.node)))
    assert looked.layers[5].over(1, looked.tokens)[4] == pytest.approx(0.94, abs=0.01)
    assert session.next.candidates[0].text == " ball"
    assert session.next.candidates[0].prob == pytest.approx(0.767, abs=0.01)


def test_the_lens_wavers_between_max_and_her_and_two_heads_push_max(session: Session) -> None:
    tokens = [token for token, _ in read(session, PARK)]
    assert tokens[1:] == [" the", " the", " the", " a", " a", " her", " Max", " her"]
    her, other = session.next.candidates[:2]
    assert (her.text, other.text) == (" her", " Max")
    assert (her.prob, other.prob) == (pytest.approx(0.85, abs=0.01), pytest.approx(0.14, abs=0.01))
    parts = answer(attribute(session, Attribute(session.node, (other.id,)))).parts
    heads = {(part.layer, head): part.head(head)[0] for part in parts for head in range(part.heads.shape[0])}
    first, second = sorted(heads, key=lambda each: -heads[each])[:2]
    assert {first, second} == {(6, 0), (6, 1)}
    assert heads[second] > 3 > 4 * sorted(heads.values())[-3]


@pytest.mark.parametrize(
    ("ranks", "layer"), [((1, 1, 1), 0), ((2, 1, 1), 1), ((1, 3, 1), 2), ((9, 1, 2), 3), ((2, 2, 1), 2)]
)
def test_a_token_leads_from_the_cell_on_from_which_it_is_first(ranks: tuple[int, ...], layer: int) -> None:
    assert LensColumn(1, tuple(LensCell((), 0.0, rank) for rank in ranks)).leads_from == layer
