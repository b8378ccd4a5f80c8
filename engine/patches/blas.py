"""A fast BLAS for MLX on a Linux CPU.

Reason: MLX's wheel for Linux brings the reference BLAS. Gain on a Linux CPU: a step 2 times, a product of matrices 25
times as fast. Upstream: no issue is known; a wheel that is linked to OpenBLAS would replace this file.

MLX's library `libmlx.so` calls three functions of a BLAS, each through a slot of the dynamic linker that holds an
address. The slots get the addresses of another library's functions. Loading a library before MLX with RTLD_GLOBAL
instead would replace the BLAS of the whole process, also for packages whose integers have another size; and
`scipy-openblas32`, the one on PyPI, has a prefix before its names, so that it can't be used that way.

Before anything is written, the slots must lie in writable memory and hold addresses of code, and the other library must
have all three functions, with integers of 32 bits. Afterwards products of several forms are compared with those of the
BLAS that MLX brings. After any failure the slots get their old values back.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import util
from itertools import product
from pathlib import Path

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.patches import allowed

FUNCTIONS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
PREFIXES = ("", "scipy_")
"""Before the names of functions: none, or that of the PyPI wheel."""
SYSTEM = ("libopenblas.so.0", "libopenblas.so", "libblis.so.4", "libblis.so")
VARIABLE = "INSPECTOR_BLAS"
"""An environment variable; `bundled` is for a machine on which a library misbehaves."""
TOLERANCE = 2e-5
"""Largest error allowed, as a share of the sum of absolute products: float32 sums of 256 numbers have about 1e-6."""
ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112
"""As CBLAS numbers them."""
_PRODUCTS = {
    "products": [((16, 1, 16), ""), ((1, 256, 96), ""), ((3, 17, 5), ""), ((33, 64, 31), "")],
    "products of one row": [((1, 200, 90), form) for form in ("", "b", "part", "b part", "b scaled")],
    "products of transposed matrices": [((48, 29, 37), form) for form in ("a", "b", "a b")],
    "products of parts of matrices": [((2, 26, 33, 17), "part")],
    "multiples of products": [((12, 20, 9), "scaled")],
}
"""Products that are checked, as shapes (..., rows, inner, columns) and forms: `a` and `b` are stored transposed, `part`
takes both from larger matrices, `scaled` is a multiple of the product added to a multiple of a third matrix."""


class BlasError(Exception):
    """A library can't serve MLX; the message says why, in part of a sentence."""


class Blas(Struct, frozen=True):
    """The library that multiplies matrices."""

    name: str = ""
    """Name and version; empty for the BLAS that MLX brings."""
    notes: tuple[str, ...] = ()
    """Sentences that say why no fast library could be used."""


def install(choice: str = "auto") -> Blas:
    """Let a fast library compute MLX's matrix products on the CPU; call it from the thread that owns MLX.

    Args:
        choice: `auto` for the first of `scipy-openblas32` and the system's OpenBLAS or BLIS that works, unless the
            environment says `bundled`, which is the BLAS that MLX brings.

    Returns:
        The library that serves MLX from now on.
    """
    if sys.platform != "linux" or mx.default_device() != mx.Device(mx.cpu):
        return Blas()
    mx.synchronize()
    _restore()
    if "bundled" in (choice, os.environ.get(VARIABLE, "").strip()) or not allowed("blas"):
        return Blas()
    reasons = []
    for path in candidates():
        try:
            return Blas(_serve(path))
        except BlasError as error:
            reasons.append(f"{path}: {error}")
        except OSError as error:  # what the linker says begins with the path
            reasons.append(str(error))
    causes = "; ".join(reasons) or "no fast one is installed (pip install scipy-openblas32)"
    return Blas(notes=(f"Matrices are multiplied by the BLAS that MLX brings, which is slow: {causes}.",))


def candidates() -> Iterator[str]:
    """Yield the libraries to try, best first."""
    spec = util.find_spec("scipy_openblas32")
    for place in (spec and spec.submodule_search_locations) or ():
        if (library := Path(place) / "lib" / "libscipy_openblas.so").is_file():
            yield str(library)
    for name in SYSTEM:
        with suppress(OSError):
            ctypes.CDLL(name)
            yield name


# ---- serving ----------------------------------------------------------------------------------


_checked = set[str]()
"""Libraries that have passed the checks, which take 20 ms: a process keeps a library that it has opened."""
_before: dict[int, int] = {}
"""The addresses that stood in the slots before they were written, by address of the slot."""


def _serve(path: str) -> str:
    """Point the slots at a library, check its products, and return its name."""
    library = ctypes.CDLL(path)
    functions, prefix = _functions(library)
    name = _prepare(library, prefix, path)
    slots = mlx_slots()
    if not all(_in_memory(address, "x") for address in functions.values()):
        raise BlasError("its functions are no code")
    expected = [] if path in _checked else list(_products())
    for function, slot in slots.items():
        _before[slot] = _cell(slot).value
        _cell(slot).value = functions[function]
    try:
        if expected:
            _check(expected)
            _check_overwriting(functions["cblas_sgemm"])
    except BlasError:
        _restore()
        raise
    _checked.add(path)
    return name


def _restore() -> None:
    for slot, address in _before.items():
        _cell(slot).value = address
    _before.clear()


def _functions(library: ctypes.CDLL) -> tuple[dict[str, int], str]:
    """The addresses of the three functions, and the prefix of their names."""
    for prefix in PREFIXES:
        if all(hasattr(library, prefix + name) for name in FUNCTIONS):
            found = {
                name: ctypes.cast(getattr(library, prefix + name), ctypes.c_void_p) for name in FUNCTIONS
            }
            return {name: address.value or 0 for name, address in found.items()}, prefix
    raise BlasError(f"it lacks {', '.join(FUNCTIONS)}")


def _prepare(library: ctypes.CDLL, prefix: str, path: str) -> str:
    """Let a library compute in one thread, and return its name and version; refuse one with integers of 64 bits.

    More threads take cores from the screen, and wait for one another on a busy machine.
    """
    name, wide = Path(path).name, False
    if (config := getattr(library, f"{prefix}openblas_get_config", None)) is not None:
        config.restype = ctypes.c_char_p
        words = (config() or b"").decode("ascii", "replace").split()
        name, wide = " ".join(words[:2]) or name, "USE64BITINT" in words
        set_threads = getattr(library, f"{prefix}openblas_set_num_threads", None)
    else:
        size = getattr(library, "bli_info_get_blas_int_type_size", None)
        wide = size is not None and size() == 64
        set_threads = getattr(library, "bli_thread_set_num_threads", None)
    if wide:
        raise BlasError("its integers have 64 bits, MLX's have 32")
    if set_threads is not None:
        set_threads(ctypes.c_int64(1))
    return name


# ---- the slots of MLX's library in memory -----------------------------------------------------

_LINKMAP, _NOLOAD = 2, 4
"""Request of `dlinfo`, and mode of `dlopen`, as Linux numbers them."""
_PLTRELSZ, _STRTAB, _SYMTAB, _PLTREL, _JMPREL, _RELA = 2, 5, 6, 20, 23, 7
"""Tags of a library's dynamic section, of `elf.h`."""


@cache
def mlx_slots() -> dict[str, int]:
    """The addresses of the slots through which MLX's library calls the functions, by their names.

    Raises:
        BlasError: MLX has no such slots, or they can't be written.
    """
    try:
        mlx = ctypes.CDLL(str(Path(mx.__file__).parent / "lib" / "libmlx.so"), mode=_NOLOAD | os.RTLD_NOW)
    except OSError as error:
        raise BlasError("MLX's library was not found in memory") from error
    link = ctypes.c_uint64()
    ctypes.CDLL(None).dlinfo(ctypes.c_void_p(mlx._handle), _LINKMAP, ctypes.byref(link))
    base, entry = _cell(link.value).value, _cell(link.value + 16).value  # `l_addr` and `l_ld`
    table: dict[int, int] = {}
    while tag := _cell(entry).value:
        table[tag] = _cell(entry + 8).value
        entry += 16
    slots: dict[str, int] = {}
    if table.get(_PLTREL) == _RELA and table[_SYMTAB] > base:  # glibc has relocated the addresses
        for relocation in range(table[_JMPREL], table[_JMPREL] + table[_PLTRELSZ], 24):
            symbol = table[_SYMTAB] + 24 * (_cell(relocation + 8).value >> 32)
            name = ctypes.string_at(table[_STRTAB] + ctypes.c_uint32.from_address(symbol).value).decode()
            slots |= {name: base + _cell(relocation).value} if name in FUNCTIONS else {}
    if len(slots) < len(FUNCTIONS):
        raise BlasError("this MLX does not call a BLAS through slots")
    if not all(slot % 8 == 0 and _in_memory(slot, "rw") for slot in slots.values()):
        raise BlasError("the slots of MLX's library can't be written")
    if not all(_in_memory(_cell(slot).value, "x") for slot in slots.values()):
        raise BlasError("the slots of MLX's library hold no functions")
    return slots


def _cell(address: int) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(address)


def _in_memory(address: int, rights: str) -> bool:
    """True if an address lies in memory of this process that has some rights: `rw` or `x`."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, allowed_, *_ = line.split()
        begin, end = (int(place, 16) for place in places.split("-"))
        if begin <= address < end:
            return rights in allowed_
    return False


# ---- checking ---------------------------------------------------------------------------------


Product = tuple[str, np.ndarray, np.ndarray]
"""Name, values, and the same sums of absolute values."""


def _products() -> Iterator[Product]:
    """Products in each type, as MLX computes them now."""
    for dtype, name in product((mx.float32, mx.float64, mx.complex64), _PRODUCTS):
        for (*batch, rows, inner, columns), form in _PRODUCTS[name]:
            a = _matrix((*batch, rows, inner), dtype, 1, "a" in form.split(), "part" in form)
            b = _matrix((*batch, inner, columns), dtype, 2, "b" in form.split(), "part" in form)
            c = _matrix((*batch, rows, columns), dtype, 3)
            scaled = "scaled" in form
            found = mx.addmm(c, a, b, 0.5, -2.0) if scaled else mx.matmul(a, b)
            most = mx.matmul(mx.abs(a), mx.abs(b)) + 2 * scaled * mx.abs(c)
            yield f"{name} of {str(dtype).removeprefix('mlx.core.')}", np.array(found), np.array(most)


def _matrix(
    shape: tuple[int, ...], dtype: mx.Dtype, seed: int, transposed: bool = False, part: bool = False
) -> mx.array:
    """Numbers between -1 and 1, which may be stored transposed, and be part of a larger matrix."""
    *batch, rows, columns = (*shape[:-2], *(size + 8 * part for size in shape[-2:]))
    stored = (columns, rows) if transposed else (rows, columns)
    drawn = mx.random.uniform(-1, 1, (2, *batch, *stored), key=mx.random.key(seed))
    values = drawn[0].astype(dtype) + (1j * drawn[1] if dtype == mx.complex64 else 0)
    mx.eval(values)
    values = values.swapaxes(-1, -2) if transposed else values
    return values[..., 4:-4, 4:-4] if part else values


def _check(expected: Iterable[Product]) -> None:
    """Compare MLX's products with those of its own BLAS.

    Raises:
        BlasError: One of them is off.
    """
    for (name, exact, most), (_, found, _) in zip(expected, _products(), strict=True):
        if not (error := float(np.max(np.abs(found - exact) / most))) <= TOLERANCE:
            raise BlasError(f"its {name} are off by {error:.2g}")


def _check_overwriting(gemm: int) -> None:
    """Refuse a library that lets through what the memory of a result held.

    CBLAS says that with beta 0 it is not read. Libraries that multiplied it by 0 instead left NaN where NaN was; some
    did so in the product of a matrix and a vector alone. MLX hands over memory as it comes.

    Args:
        gemm: Address of the library's `cblas_sgemm`, which is called directly.

    Raises:
        BlasError: The library does.
    """
    whole, real, matrix = ctypes.c_int, ctypes.c_float, (ctypes.c_void_p, ctypes.c_int)
    multiply = ctypes.CFUNCTYPE(None, *[whole] * 6, real, *matrix, *matrix, real, *matrix)(gemm)
    for rows, (stored, shape) in product((1, 3), ((PLAIN, (70, 50)), (TRANSPOSED, (50, 70)))):
        a, b = (np.array(_matrix(each, mx.float32, 11)) for each in ((rows, 70), shape))
        found = np.full((rows, 50), np.nan, np.float32)
        left, right, result = ((each.ctypes.data, each.shape[1]) for each in (a, b, found))
        multiply(ROW_MAJOR, PLAIN, stored, rows, 50, 70, 1.0, *left, *right, 0.0, *result)
        if np.isnan(found).any():
            raise BlasError("its results keep NaN that was in their memory before")
