"""A fast BLAS for MLX on a Linux CPU.

Reason: MLX's wheel for Linux bundles the reference BLAS. Gain on a Linux CPU: a step is 2 times as fast, a product of
matrices 25 times. Upstream: no issue is known; a wheel that is linked to OpenBLAS would replace this file.

MLX's library `libmlx.so` calls three functions of a BLAS, each through an address in a slot of the dynamic linker. This
patch writes the addresses of another library's functions into the slots. Loading a library before MLX with RTLD_GLOBAL
instead would replace the BLAS of the whole process, also for packages whose integers have another size; and
`scipy-openblas32`, the one on PyPI, has a prefix before its names, so that it can't be used that way.

Before anything is written, the slots must be in writable memory and contain addresses of code, and the other library
must have all three functions, with 32-bit integers. Afterwards products of several forms are compared with those of the
bundled BLAS. After any failure the slots get their old values back.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from importlib import util
from itertools import product
from pathlib import Path

import mlx.core as mx
import numpy as np
from msgspec import Struct

from engine.patches import allowed
from engine.patches.one_row import forwarded

FUNCTIONS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
TOLERANCE = 2e-5
"""Largest error allowed, as a share of the sum of absolute products: float32 sums of 256 numbers have about 1e-6."""
_PRODUCTS: dict[str, list[tuple[tuple[int, ...], str]]] = {
    "products": [((16, 1, 16), ""), ((1, 256, 96), ""), ((3, 17, 5), ""), ((33, 64, 31), "")],
    "products of one row": [((1, 200, 90), form) for form in ("", "b", "part", "b part", "b scaled")],
    "products of transposed matrices": [((48, 29, 37), form) for form in ("a", "b", "a b")],
    "products of parts of matrices": [((2, 26, 33, 17), "part")],
    "multiples of products": [((12, 20, 9), "scaled")],
}
"""Products to check, as shapes (..., rows, inner, columns) and forms: `a` and `b` are stored transposed, `part` takes
both from larger matrices, `scaled` adds a multiple of the product to a multiple of a third matrix."""


class BlasError(Exception):
    """A library can't serve MLX; the message is the reason, as part of a sentence."""


class Blas(Struct, frozen=True):
    """The library that multiplies matrices."""

    name: str = ""
    """Name and version; empty for the BLAS that MLX bundles."""
    notes: tuple[str, ...] = ()
    """Sentences that say why no fast library could be used."""


def install(choice: str = "auto") -> Blas:
    """Let a fast library compute MLX's matrix products on the CPU; call it from the thread that owns MLX.

    Args:
        choice: `auto` for the first of `scipy-openblas32` and the system's OpenBLAS or BLIS that works; `bundled` for
            the BLAS that MLX bundles, as if the environment variable INSPECTOR_BLAS is `bundled`.

    Returns:
        The library that MLX uses from now on.
    """
    if sys.platform != "linux" or mx.default_device() != mx.Device(mx.cpu):
        return Blas()
    mx.synchronize()
    _undo.close()
    if "bundled" in (choice, os.environ.get("INSPECTOR_BLAS", "").strip()) or not allowed("blas"):
        return Blas()
    reasons = []
    for path in candidates():
        try:
            return Blas(_serve(path))
        except (BlasError, OSError, AttributeError) as error:
            _undo.close()
            # the linker's message begins with the path
            reasons.append(str(error) if isinstance(error, OSError) else f"{path}: {error}")
    causes = "; ".join(reasons) or "no fast one is installed (pip install scipy-openblas32)"
    return Blas(notes=(f"Matrices are multiplied by the BLAS that MLX brings, which is slow: {causes}.",))


def candidates() -> Iterator[str]:
    """Yield the libraries to try, best first."""
    spec = util.find_spec("scipy_openblas32")
    if spec and (library := Path(spec.origin or "x").with_name("lib") / "libscipy_openblas.so").is_file():
        yield str(library)
    for name in ("libopenblas.so.0", "libopenblas.so", "libblis.so.4", "libblis.so"):
        with suppress(OSError):
            ctypes.CDLL(name)
            yield name


# ---- serving ----------------------------------------------------------------------------------


_checked = set[str]()
"""Libraries that passed the checks, which take 20 ms: one check is enough, since a process keeps an opened library."""
_undo = ExitStack()
"""Restores the old addresses in the slots."""


def _serve(path: str) -> str:
    """Point the slots at a library, check its products, and return its name.

    The library computes in one thread: more threads take cores from the screen, and wait for each other on a busy
    machine.
    """
    library = ctypes.CDLL(path)
    prefixes = ("", "scipy_")  # the second is the PyPI wheel's
    whole = (each for each in prefixes if all(hasattr(library, each + name) for name in FUNCTIONS))
    if (prefix := next(whole, None)) is None:
        raise BlasError(f"it lacks {', '.join(FUNCTIONS)}")
    words: list[str] = []
    if (config := getattr(library, f"{prefix}openblas_get_config", None)) is not None:
        config.restype = ctypes.c_char_p
        words = (config() or b"").decode("ascii", "replace").split()
    bits = getattr(library, "bli_info_get_blas_int_type_size", None)
    if "USE64BITINT" in words or (bits is not None and bits() == 64):
        raise BlasError("its integers have 64 bits, MLX's have 32")
    for setter in (f"{prefix}openblas_set_num_threads", "bli_thread_set_num_threads"):
        if (set_threads := getattr(library, setter, None)) is not None:
            set_threads(ctypes.c_int64(1))
    names = [*FUNCTIONS, *(["cblas_sgemv"] if hasattr(library, f"{prefix}cblas_sgemv") else [])]
    found = [ctypes.cast(getattr(library, prefix + name), ctypes.c_void_p).value or 0 for name in names]
    if len(found) > len(FUNCTIONS):
        found[0] = forwarded(found[0], found.pop())
    if not _in_memory(found, "x"):
        raise BlasError("its functions are no code")
    expected = [] if path in _checked else list(_products())
    mx.synchronize()
    for slot, address in zip(mlx_slots(), found, strict=True):
        _undo.callback(setattr, slot, "value", slot.value)
        slot.value = address
    if expected:
        _check(expected, found[0])
        _matrix.cache_clear()
    _checked.add(path)
    return " ".join(words[:2]) or Path(path).name


# ---- the slots of MLX's library in memory -----------------------------------------------------

_cell = ctypes.c_uint64.from_address
_PLTRELSZ, _STRTAB, _SYMTAB, _JMPREL = 2, 5, 6, 23
"""Tags of a library's dynamic section, of `elf.h`."""


@cache
def mlx_slots() -> list[ctypes.c_uint64]:
    """The slots through which MLX's library calls the functions, in their order.

    Raises:
        BlasError: MLX has no such slots, or they can't be written.
        OSError: MLX's library is not in memory.
    """
    path = Path(mx.__file__).parent / "lib" / "libmlx.so"
    mlx, link = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_NOW), ctypes.c_uint64()
    if ctypes.CDLL(None).dlinfo(ctypes.c_void_p(mlx._handle), 2, ctypes.byref(link)):  # RTLD_DI_LINKMAP
        raise BlasError("MLX's library was not found in memory")
    base, entry = _cell(link.value).value, _cell(link.value + 16).value  # `l_addr` and `l_ld`
    table: dict[int, int] = {}
    while tag := _cell(entry).value:
        table[tag] = _cell(entry + 8).value
        entry += 16
    slots: dict[str, int] = {}
    if _JMPREL in table and table[_SYMTAB] > base:  # glibc has relocated the addresses
        for relocation in range(table[_JMPREL], table[_JMPREL] + table[_PLTRELSZ], 24):
            symbol = table[_SYMTAB] + 24 * (_cell(relocation + 8).value >> 32)
            name = ctypes.string_at(table[_STRTAB] + ctypes.c_uint32.from_address(symbol).value).decode()
            slots[name] = base + _cell(relocation).value
    if not slots.keys() >= set(FUNCTIONS):
        raise BlasError("this MLX does not call a BLAS through slots")
    addresses = [slots[name] for name in FUNCTIONS]
    if any(slot % 8 for slot in addresses) or not _in_memory(addresses, "rw"):
        raise BlasError("the slots of MLX's library can't be written")
    if not _in_memory([_cell(slot).value for slot in addresses], "x"):
        raise BlasError("the slots of MLX's library hold no functions")
    return [_cell(slot) for slot in addresses]


def _in_memory(addresses: Sequence[int], rights: str) -> bool:
    """True if all addresses are in memory of this process with these rights: `rw` or `x`."""
    parts = [re.split("[- ]", line, maxsplit=2) for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [range(int(begin, 16), int(end, 16)) for begin, end, found in parts if rights in found[:4]]
    return all(any(address in each for each in ranges) for address in addresses)


# ---- checking ---------------------------------------------------------------------------------


def _products() -> Iterator[tuple[str, mx.array, mx.array]]:
    """Products in each dtype, as MLX computes them now: name, values, and the sums of the terms' absolute values."""
    for dtype, (name, forms) in product((mx.float32, mx.float64, mx.complex64), _PRODUCTS.items()):
        for (*batch, rows, inner, columns), form in forms:
            a = _matrix("a", (*batch, rows, inner), dtype, form)
            b = _matrix("b", (*batch, inner, columns), dtype, form)
            c = _matrix("c", (*batch, rows, columns), dtype) if "scaled" in form else mx.array(0.0)
            found = mx.addmm(c, a, b, 0.5, -2.0) if "scaled" in form else mx.matmul(a, b)
            most = mx.matmul(mx.abs(a), mx.abs(b)) + mx.abs(c)
            mx.async_eval(found, most)
            yield f"{name} of {str(dtype).removeprefix('mlx.core.')}", found, most


@cache
def _matrix(name: str, shape: tuple[int, ...], dtype: mx.Dtype, form: str = "") -> mx.array:
    """Numbers between -1 and 1 in one of the forms of `_PRODUCTS`."""
    transposed, around = name in form.split(), 4 * ("part" in form)
    *batch, rows, columns = (*shape[:-2], *(size + 2 * around for size in shape[-2:]))
    stored = (columns, rows) if transposed else (rows, columns)
    steps = np.arange(np.prod((*batch, *stored))).reshape(*batch, *stored) * 7 * ord(name) % 127
    real = (2 * steps - 125).astype(np.float32) / 128  # exact in all types, and never 0
    values = mx.array(real + 1j * real[..., ::-1] if dtype == mx.complex64 else real).astype(dtype)
    values = values.swapaxes(-1, -2) if transposed else values
    return values[..., around : rows - around, around : columns - around]


def _check(expected: list[tuple[str, mx.array, mx.array]], gemm: int) -> None:
    """Compare MLX's products with those of its own BLAS, and refuse a library that reads the memory of a result.

    According to CBLAS, it must not be read if beta is 0. Libraries that multiply it by 0 instead leave NaN where NaN
    was; some only do so in the product of a matrix and a vector. MLX passes uninitialized memory.

    Args:
        expected: Products of MLX's own BLAS, from `_products`.
        gemm: Address of the library's `cblas_sgemm`, which is called directly.

    Raises:
        BlasError: A product is off, or NaN is left.
    """
    for (name, exact, most), (_, found, _) in zip(expected, _products(), strict=True):
        error = float(np.max(np.abs(np.array(found) - np.array(exact)) / np.array(most)))
        if not error <= TOLERANCE:
            raise BlasError(f"its {name} are off by {error:.2g}")
    whole, real, matrix = ctypes.c_int, ctypes.c_float, (ctypes.c_void_p, ctypes.c_int)
    multiply = ctypes.CFUNCTYPE(None, *[whole] * 6, real, *matrix, *matrix, real, *matrix)(gemm)
    # CBLAS numbers row-major matrices 101, plain ones 111 and transposed ones 112
    for rows, (stored, shape) in product((1, 3), ((111, (70, 50)), (112, (50, 70)))):
        a, b = np.array(_matrix("a", (rows, 70), mx.float32)), np.array(_matrix("b", shape, mx.float32))
        c = np.full((rows, 50), np.nan, np.float32)
        left, right, result = ((each.ctypes.data, each.shape[1]) for each in (a, b, c))
        multiply(101, 111, stored, rows, 50, 70, 1.0, *left, *right, 0.0, *result)
        if np.isnan(c).any():
            raise BlasError("its results keep NaN that was in their memory before")
