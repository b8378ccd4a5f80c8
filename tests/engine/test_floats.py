"""Arrays of numbers in a record: what is packed is unpacked, and bytes that aren't those of the shape are no row."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Floats, floats

SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=3)
BITS = st.sampled_from((16, 32))


@st.composite
def arrays(draw: st.DrawFn) -> tuple[Floats, np.ndarray]:
    """An array, packed and as numpy has it."""
    shape, bits = draw(SHAPES), draw(BITS)
    number = st.floats(width=bits, allow_nan=False)
    count = int(np.prod(shape))
    values = draw(st.lists(number, min_size=count, max_size=count))
    return floats(values, shape, bits), np.array(values, dtype=f"<f{bits // 8}").reshape(shape)


@given(arrays())
def test_each_row_is_read_back(made: tuple[Floats, np.ndarray]) -> None:
    packed, truth = made
    assert packed.fits
    assert packed.packed == truth.tobytes()
    for index in itertools.product(*map(range, truth.shape[:-1])):
        assert packed.row(*index) == tuple(truth[index].tolist())


@given(arrays(), st.lists(st.integers(-5, 5), max_size=4))
def test_a_row_that_is_not_there_is_empty(made: tuple[Floats, np.ndarray], index: list[int]) -> None:
    packed, truth = made
    inside = len(index) == truth.ndim - 1 and all(
        0 <= at < length for at, length in zip(index, truth.shape, strict=False)
    )
    assert packed.row(*index) == (tuple(truth[tuple(index)].tolist()) if inside else ())


@given(arrays(), st.binary(min_size=1, max_size=3))
def test_bytes_of_another_length_are_no_array(made: tuple[Floats, np.ndarray], more: bytes) -> None:
    packed, truth = made
    for wrong in (packed.packed + more, packed.packed[:-1]):
        broken = Floats(packed.shape, wrong, packed.bits)
        if len(wrong) != len(packed.packed):
            assert not broken.fits
            assert broken.row(*[0] * (truth.ndim - 1)) == ()


def test_another_width_is_no_array() -> None:
    assert Floats((1,), b"\0\0\0\0", 32).row() == (0.0,)
    assert not Floats((1,), b"\0\0\0\0\0\0\0\0", 64).fits
    assert Floats((1,), b"\0\0\0\0\0\0\0\0", 64).row() == ()


@pytest.mark.parametrize("bits", [16, 32])
def test_numbers_are_rounded_to_the_width(bits: int) -> None:
    third = floats([1 / 3], (1,), bits).row()[0]  # type: ignore[arg-type]
    assert third == float(np.array(1 / 3, dtype=f"f{bits // 8}"))
