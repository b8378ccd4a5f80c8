"""A fast BLAS for MLX: the slots serve another library, a wrong or lame one is refused, and they can be put back."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from engine.patches import blas

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="MLX's BLAS is replaced on Linux alone")
PLAIN, TRANSPOSED = 111, 112
PREFIXES = ("", "scipy_")


class Library:
    """A BLAS in Python, with addresses like one of a shared library; it counts its calls.

    Args:
        prefix: Before its names.
        factor: 1 for right results.
    """

    def __init__(
        self, prefix: str = "", factor: float = 1.0, config: bytes = b"OpenBLAS 9.9 NO_AFFINITY"
    ) -> None:
        self.calls = 0
        self._factor = factor
        for letter, number, scalar in (
            ("s", ctypes.c_float, ctypes.c_float),
            ("d", ctypes.c_double, ctypes.c_double),
            ("c", ctypes.c_float, ctypes.c_void_p),
        ):
            setattr(self, f"{prefix}cblas_{letter}gemm", self._gemm(letter, number, scalar))
        setattr(self, f"{prefix}openblas_get_config", type("Get", (), {"__call__": lambda _: config})())

    def _gemm(self, letter: str, number: Any, scalar: Any) -> Any:
        whole, pointer = ctypes.c_int, ctypes.c_void_p
        complex_, words = letter == "c", 2 if letter == "c" else 1

        def matrix(at: int, rows: int, columns: int, apart: int) -> np.ndarray:
            cells = (
                ctypes.c_byte * (ctypes.sizeof(number) * words * ((rows - 1) * apart + columns))
            ).from_address(at)
            flat = np.frombuffer(cells, dtype={"s": "f4", "d": "f8", "c": "c8"}[letter])
            step = flat.itemsize
            return np.lib.stride_tricks.as_strided(flat, (rows, columns), (apart * step, step))

        def value(given: Any) -> complex:
            return complex(*(ctypes.c_float * 2).from_address(given)) if complex_ else given

        def gemm(
            order: int, ta: int, tb: int, m: int, n: int, k: int, alpha: Any, a: int, lda: int, b: int, ldb: int,
            beta: Any, c: int, ldc: int,
        ) -> None:  # fmt: skip
            assert order == 101
            self.calls += 1
            left = matrix(a, m, k, lda) if ta == PLAIN else matrix(a, k, m, lda).T
            right = matrix(b, k, n, ldb) if tb == PLAIN else matrix(b, n, k, ldb).T
            out, rest = matrix(c, m, n, ldc), value(beta)
            found = value(alpha) * (left @ right) * self._factor
            out[:] = found + (rest * out if rest else 0)

        kinds = (*[whole] * 6, scalar, pointer, whole, pointer, whole, scalar, pointer, whole)
        return ctypes.CFUNCTYPE(None, *kinds)(gemm)


@pytest.fixture(autouse=True)
def _put_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("INSPECTOR_BLAS", raising=False)
    monkeypatch.delenv("INSPECTOR_PATCHES", raising=False)
    yield
    monkeypatch.undo()
    blas.install("auto")


def made_up(monkeypatch: pytest.MonkeyPatch, library: object) -> None:
    """Have one library alone be there, whatever the environment says."""
    monkeypatch.delenv("INSPECTOR_BLAS", raising=False)
    monkeypatch.setattr(blas, "candidates", lambda: iter(["/made/up.so"]))
    blas.mlx_slots()  # with the real CDLL
    monkeypatch.setattr(blas.ctypes, "CDLL", lambda path: library)
    monkeypatch.setattr(blas, "_checked", set())


def use(monkeypatch: pytest.MonkeyPatch, library: object) -> blas.Blas:
    made_up(monkeypatch, library)
    try:
        return blas.install()
    finally:
        monkeypatch.undo()


def product() -> float:
    """The error of a product."""
    a, b = (np.random.default_rng(n).standard_normal((30, 30)).astype(np.float32) for n in (0, 1))
    found = np.asarray(mx.matmul(mx.array(a), mx.array(b), stream=mx.cpu))
    return float(np.max(np.abs(found - a.astype(np.float64) @ b.astype(np.float64))))


@pytest.mark.parametrize("prefix", PREFIXES)
def test_another_library_multiplies_and_can_be_taken_away(
    monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    library = Library(prefix)
    assert use(monkeypatch, library) == blas.Blas("OpenBLAS 9.9")
    before = library.calls
    assert before > 0  # of the check
    assert product() < 1e-5
    assert library.calls == before + 1
    assert blas.install("bundled") == blas.Blas()
    assert product() < 1e-5
    assert library.calls == before + 1


def test_a_library_is_checked_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    made_up(monkeypatch, library)
    calls = []
    for _ in range(2):
        assert blas.install().name
        calls.append(library.calls)
    assert calls == [calls[0]] * 2
    assert product() < 1e-5
    assert library.calls == calls[0] + 1


def test_a_library_that_is_wrong_by_one_percent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(factor=1.01)
    found = use(monkeypatch, library)
    assert not found.name
    assert "its products of float32 are off by 0.01" in found.notes[0]
    calls = library.calls
    assert product() < 1e-5
    assert library.calls == calls


def test_one_that_is_wrong_for_one_form_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    right = library.cblas_sgemm  # type: ignore[attr-defined]
    kind = type(right)
    keep = kind(
        lambda *given: right(*given[:6], 2 * given[6] if given[1] == TRANSPOSED else given[6], *given[7:])
    )
    library.cblas_sgemm = keep  # type: ignore[attr-defined]
    assert "transposed matrices of float32 are off" in use(monkeypatch, library).notes[0]
    assert product() < 1e-5


@pytest.mark.parametrize("rows", [1, 3])
def test_one_that_multiplies_what_was_there_by_0_is_refused(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """With beta 0 the memory of a result may hold anything, NaN too; MLX hands it over as it comes."""
    library = Library()
    right = library.cblas_sgemm  # type: ignore[attr-defined]

    def reads_all(*given: Any) -> None:
        cell = (ctypes.c_float * 1).from_address(given[12])
        before = cell[0]
        right(*given)
        if given[3] == rows and given[11] == 0:
            cell[0] += 0 * before

    keep = type(right)(reads_all)
    library.cblas_sgemm = keep  # type: ignore[attr-defined]
    found = use(monkeypatch, library)
    assert not found.name
    assert re.search("keep NaN that was in their memory|off by nan", found.notes[0])
    assert product() < 1e-5


def test_a_library_without_the_functions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lame = SimpleNamespace(cblas_sgemm=Library().cblas_sgemm)  # type: ignore[attr-defined]
    (note,) = use(monkeypatch, lame).notes
    assert "it lacks cblas_sgemm, cblas_dgemm, cblas_cgemm" in note
    assert product() < 1e-5


def test_integers_of_64_bits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(config=b"OpenBLAS 9.9 USE64BITINT NO_AFFINITY")
    assert "its integers have 64 bits" in use(monkeypatch, library).notes[0]
    assert library.calls == 0


def test_a_blis_tells_its_integers_and_gets_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    library = Library()
    del library.openblas_get_config  # type: ignore[attr-defined]
    library.bli_info_get_blas_int_type_size = lambda: 32  # type: ignore[attr-defined]
    library.bli_thread_set_num_threads = lambda count: asked.append(count.value)  # type: ignore[attr-defined]
    assert use(monkeypatch, library) == blas.Blas("up.so")
    assert asked == [1]
    library.bli_info_get_blas_int_type_size = lambda: 64  # type: ignore[attr-defined]
    assert "its integers have 64 bits" in use(monkeypatch, library).notes[0]


def test_addresses_that_are_no_code_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = (ctypes.c_byte * 64)()
    lame = SimpleNamespace(**{name: ctypes.addressof(data) for name in blas.FUNCTIONS})
    assert "its functions are no code" in use(monkeypatch, lame).notes[0]
    assert product() < 1e-5


@pytest.mark.parametrize("path", ["/no/such/library.so", __file__])
def test_what_is_no_library_is_refused(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(blas, "candidates", lambda: iter([path]))
    (note,) = blas.install().notes
    assert path in note
    assert "\n" not in note
    assert product() < 1e-5


def test_a_machine_without_any_keeps_its_own_and_says_what_would_be_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(blas, "candidates", lambda: iter(()))
    found = blas.install("auto")
    assert not found.name
    assert "pip install scipy-openblas32" in found.notes[0]
    assert product() < 1e-5


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    made_up(monkeypatch, library)
    monkeypatch.setenv("INSPECTOR_BLAS", "bundled")
    assert blas.install("auto") == blas.Blas()
    assert library.calls == 0


def test_the_next_candidate_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Library()
    libraries = {"wrong": Library(factor=1.01), "right": right}
    monkeypatch.setattr(blas, "candidates", lambda: iter(libraries))
    blas.mlx_slots()
    monkeypatch.setattr(blas.ctypes, "CDLL", lambda path: libraries[path])
    monkeypatch.setattr(blas, "_checked", set())
    assert blas.install("auto") == blas.Blas("OpenBLAS 9.9")


def test_the_slots_get_their_own_functions_back() -> None:
    blas.install("bundled")
    slots = blas.mlx_slots()
    assert len(slots) == len(blas.FUNCTIONS)
    before = [slot.value for slot in slots]
    if blas.install().name:
        assert [slot.value for slot in slots] != before
    blas.install("bundled")
    assert [slot.value for slot in slots] == before


def test_an_mlx_without_slots_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "FUNCTIONS", ("no_such_function",))
    monkeypatch.setattr(blas, "mlx_slots", blas.mlx_slots.__wrapped__)
    with pytest.raises(blas.BlasError, match="does not call a BLAS through slots"):
        blas.mlx_slots()


def test_the_patches_are_switched_off_together(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    made_up(monkeypatch, library)
    monkeypatch.setenv("INSPECTOR_PATCHES", "rotary, imports")
    assert blas.install() == blas.Blas()
    assert library.calls == 0
    monkeypatch.setenv("INSPECTOR_PATCHES", "rotary, blas")
    assert blas.install() == blas.Blas("OpenBLAS 9.9")


def test_it_has_one_thread() -> None:
    if not blas.install().name:
        pytest.skip("no fast BLAS is installed")
    library = ctypes.CDLL(next(blas.candidates()))
    (count,) = (
        getattr(library, f"{prefix}openblas_get_num_threads")()
        for prefix in PREFIXES
        if hasattr(library, f"{prefix}openblas_get_num_threads")
    )
    assert count == 1


def test_numpy_starts_no_threads_of_its_own() -> None:
    """numpy's OpenBLAS starts one for each core when it is imported."""
    script = "import os, engine, numpy; print(len(os.listdir('/proc/self/task')))"
    kept = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    assert subprocess.check_output([sys.executable, "-c", script], env=kept, text=True) == "1\n"
