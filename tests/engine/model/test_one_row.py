"""One row by a matrix through a few instructions: called directly, against numpy in float64."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.model import blas

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the instructions are those of x86-64"
)
COLUMN_MAJOR, CONJUGATED = 102, 113
INT, FLOAT, POINTER = ctypes.c_int, ctypes.c_float, ctypes.c_void_p
GEMM = ctypes.CFUNCTYPE(
    None, INT, INT, INT, INT, INT, INT, FLOAT, POINTER, INT, POINTER, INT, FLOAT, POINTER, INT
)
GEMV = ctypes.CFUNCTYPE(None, INT, INT, INT, INT, FLOAT, POINTER, INT, POINTER, INT, FLOAT, POINTER, INT)


def made(gemm: Any, gemv: Any) -> Callable[..., None]:
    """The function of the instructions, for two others."""
    address = blas.forwarded(*(ctypes.cast(each, POINTER).value or 0 for each in (gemm, gemv)))
    assert address is not None
    return GEMM(address)


def library() -> tuple[Any, Any]:
    """The two functions of the fast library that this environment has."""
    found = next(blas.candidates(), None)
    if found is None:
        pytest.skip("no fast BLAS is installed")
    loaded = ctypes.CDLL(found)
    prefix = next(each for each in blas.PREFIXES if hasattr(loaded, f"{each}cblas_sgemm"))
    return getattr(loaded, f"{prefix}cblas_sgemm"), getattr(loaded, f"{prefix}cblas_sgemv")


def pointer(values: np.ndarray) -> int:
    return values.ctypes.data


small = st.integers(1, 40)


@given(st.integers(1, 3), small, small, st.booleans(), st.booleans(), st.integers(0, 5), st.integers(0, 5),
       st.sampled_from([1.0, 0.5, -2.0]), st.sampled_from([0.0, 1.0, -0.5]), st.integers(0, 2**32))  # fmt: skip
def test_products_are_numpys(
    m: int,
    n: int,
    k: int,
    left: bool,
    right: bool,
    more: int,
    after: int,
    alpha: float,
    beta: float,
    seed: int,
) -> None:
    """Any size, each side transposed or not, rows further apart than they are long, alpha and beta."""
    draw = np.random.default_rng(seed)
    a, b = draw.uniform(-1, 1, (m, k)), draw.uniform(-1, 1, (k, n))
    c = draw.uniform(-1, 1, (m, n + after))

    def stored(values: np.ndarray, turned: bool) -> np.ndarray:
        values = values.T if turned else values
        wide = np.full((values.shape[0], values.shape[1] + more), np.nan, np.float32)
        wide[:, : values.shape[1]] = values
        return wide

    x, y, z = stored(a, left), stored(b, right), c.astype(np.float32)
    made(*library())(
        blas.ROW_MAJOR,
        blas.TRANSPOSED if left else blas.PLAIN,
        blas.TRANSPOSED if right else blas.PLAIN,
        m, n, k, alpha, pointer(x), x.shape[1], pointer(y), y.shape[1], beta, pointer(z), z.shape[1],
    )  # fmt: skip
    exact = alpha * (a @ b) + beta * c[:, :n]
    assert np.abs(z[:, :n] - exact).max() < 1e-5 * (k + 1)
    assert (z[:, n:] == c[:, n:].astype(np.float32)).all()


def told() -> tuple[list[tuple[Any, ...]], Callable[..., None]]:
    """What either function was called with, and the function that chooses between them."""
    calls: list[tuple[Any, ...]] = []
    gemm = GEMM(lambda *given: calls.append(("gemm", *given)))
    gemv = GEMV(lambda *given: calls.append(("gemv", *given)))
    function = made(gemm, gemv)
    function.others = gemm, gemv  # type: ignore[attr-defined]
    return calls, function


A, B, C = 0x7FFF_0000_1000, 0x7FFF_0000_2000, 0x7FFF_0000_3000


@pytest.mark.parametrize(
    ("right", "expected"),
    [
        (blas.TRANSPOSED, ("gemv", 101, 111, 7, 5, 0.5, B, 9, A, 1, -2.0, C, 1)),
        (blas.PLAIN, ("gemv", 101, 112, 5, 7, 0.5, B, 9, A, 1, -2.0, C, 1)),
    ],
)
def test_a_row_goes_to_gemv_with_its_arguments(right: int, expected: tuple[Any, ...]) -> None:
    calls, function = told()
    function(101, 111, right, 1, 7, 5, 0.5, A, 8, B, 9, -2.0, C, 10)
    assert calls == [expected]


@pytest.mark.parametrize(
    "given",
    [
        (101, 111, 112, 2, 7, 5),
        (101, 111, 112, 0, 7, 5),
        (101, 111, 112, -1, 7, 5),
        (COLUMN_MAJOR, 111, 112, 1, 7, 5),
        (101, 112, 112, 1, 7, 5),
        (101, CONJUGATED, 111, 1, 7, 5),
        (101, 111, CONJUGATED, 1, 7, 5),
        (101, 111, 0, 1, 7, 5),
    ],
)
def test_all_else_goes_to_gemm_untouched(given: tuple[int, ...]) -> None:
    calls, function = told()
    rest = (0.5, A, 8, B, 9, -2.0, C, 10)
    function(*given, *rest)
    assert calls == [("gemm", *given, *rest)]


def test_memory_that_may_not_be_executed_leaves_the_library_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Denied:
        class mprotect:
            argtypes = ()

            def __new__(cls, *given: Any) -> int:
                return -1

    monkeypatch.setattr(blas.ctypes, "CDLL", lambda *name, **options: Denied)
    assert blas.forwarded(1, 2) is None


@pytest.mark.parametrize(
    ("system", "machine"), [("linux", "aarch64"), ("darwin", "arm64"), ("darwin", "x86_64")]
)
def test_other_machines_have_none(system: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas.sys, "platform", system)
    monkeypatch.setattr(blas.platform, "machine", lambda: machine)
    assert blas.forwarded(1, 2) is None


def test_jumps_lead_where_the_words_say() -> None:
    """The distance in each jump is that to the instruction that its words name."""
    begin, labels, jumps = 0, {}, []
    for code, words in blas._CODE:
        size = len(bytes.fromhex(code.format(gemm="00" * 8, gemv="00" * 8)))
        label = words.partition(": ")[0]
        if label in ("rows", "gemv", "gemm"):
            labels[label] = begin
        jump = next(
            (part.split()[1].rstrip(":") for part in words.split("; ") if part[:3] in ("jne", "je ", "jmp")),
            "",
        )
        if jump in ("rows", "gemv", "gemm"):
            jumps.append((begin + size, jump, bytes.fromhex(code)[-1]))
        begin += size
    assert len(jumps) == 6
    assert [labels[name] - end for end, name, _ in jumps] == [distance for _, _, distance in jumps]
