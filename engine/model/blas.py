"""A fast BLAS for MLX on a Linux CPU.

MLX's wheel for Linux brings the reference BLAS: a product of two 512 x 512 float32 matrices runs at 3 GFLOP/s, with
OpenBLAS at 155. Its library `libmlx.so` calls three functions of a BLAS, each through a slot that holds an address.
Here the slots are given the addresses of another library's functions.

Of three ways this one was chosen:
- A library that is loaded before MLX with RTLD_GLOBAL takes over every BLAS call of the whole process, also those of
  other packages, whose integers may have another size. It has to come first, and `scipy-openblas32`, the one on PyPI,
  has a prefix before its names, so that it can't serve them.
- A copy of that library with other names would be a file of our own making, of 25 MB, written on the user's disk.
- Three slots concern MLX alone, work at any time, and are put back by writing them again.

Before anything is written: the file is an ELF library whose linker tables name the slots, the memory there is writable
and holds addresses of code, and the other library has all three functions, with integers of 32 bits. Afterwards
products of several forms are compared with numpy's in float64. Any doubt puts the slots back.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib import util
from itertools import product
from pathlib import Path

import mlx.core as mx
import numpy as np
from msgspec import Struct

FUNCTIONS = ("cblas_sgemm", "cblas_dgemm", "cblas_cgemm")
PREFIXES = ("", "scipy_")
"""Before the names: none, or that of the PyPI wheel."""
SYSTEM = ("libopenblas.so.0", "libopenblas.so", "libblis.so.4", "libblis.so")
BUNDLED = "the BLAS that MLX brings"
MISSING = "no fast one is installed (pip install scipy-openblas32)"
VARIABLE = "INSPECTOR_BLAS"
"""An environment variable; `bundled` is for a machine where a library misbehaves."""
_SGEMM = ctypes.CFUNCTYPE(
    None, *[ctypes.c_int] * 6, ctypes.c_float, *[ctypes.c_void_p, ctypes.c_int] * 2, ctypes.c_float,
    ctypes.c_void_p, ctypes.c_int,
)  # fmt: skip
"""`cblas_sgemm` as C has it."""
TOLERANCE = 2e-5
"""Largest error allowed, as a share of the sum of absolute products: float32 sums of 256 numbers have about 1e-6."""


class BlasError(Exception):
    """A library can't serve MLX; the message says why, in part of a sentence."""


class Blas(Struct, frozen=True):
    """Which library multiplies matrices."""

    name: str = ""
    """Name and version; empty for what MLX brings."""
    notes: tuple[str, ...] = ()
    """Why it is not a fast one though one was wished for."""

    @property
    def fast(self) -> bool:
        """True if it is another one than MLX brings."""
        return bool(self.name)


def install(choice: str = "auto") -> Blas:
    """Have MLX's matrix products on the CPU computed by a fast library; from the thread that owns MLX.

    Args:
        choice: `auto` for the first of `scipy-openblas32` and the system's OpenBLAS or BLIS that works, unless the
            environment says `bundled`, which is what MLX brings.

    Returns:
        What serves MLX from now on.
    """
    if not _concerned():
        return Blas()
    mx.synchronize()
    _slots.restore()
    if "bundled" in (choice, os.environ.get(VARIABLE, "").strip()):
        return Blas()
    reasons = []
    for path in candidates():
        try:
            return Blas(_serve(path))
        except (BlasError, ElfError) as error:
            reasons.append(f"{path}: {error}")
        except OSError as error:  # what the linker says begins with the path
            reasons.append(str(error))
    causes = "; ".join(reasons) or MISSING
    return Blas(notes=(f"Matrices are multiplied by {BUNDLED}, which is slow: {causes}.",))


def candidates() -> Iterator[str]:
    """Libraries to try, best first."""
    try:
        spec = util.find_spec("scipy_openblas32")
    except (ImportError, ValueError):
        spec = None
    for place in spec.submodule_search_locations or () if spec else ():
        library = Path(place) / "lib" / "libscipy_openblas.so"
        if library.is_file():
            yield str(library)
    for name in SYSTEM:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        yield name


def _concerned() -> bool:
    """True if this is a Linux process whose MLX computes on the CPU."""
    return sys.platform == "linux" and mx.default_device() == mx.Device(mx.cpu)


# ---- serving ----------------------------------------------------------------------------------


_sound = set[str]()
"""Libraries that have been checked: a process keeps one that it has opened, and each model that is loaded would wait
20 ms for the same answer."""


def _serve(path: str) -> str:
    """Point the slots at a library, check it, and name it; at any doubt they are as they were."""
    library = ctypes.CDLL(path)
    functions, prefix = _functions(library)
    name = _describe(library, prefix, path)
    gemv = getattr(library, f"{prefix}cblas_sgemv", None)
    if gemv is not None:
        one_row = forwarded(functions["cblas_sgemm"], ctypes.cast(gemv, ctypes.c_void_p).value or 0)
        functions["cblas_sgemm"] = one_row or functions["cblas_sgemm"]
    _slots.write(functions)
    if path in _sound:
        return name
    try:
        check()
        _check_overwriting(functions["cblas_sgemm"])
    except BlasError:
        _slots.restore()
        raise
    _sound.add(path)
    return name


def _functions(library: ctypes.CDLL) -> tuple[dict[str, int], str]:
    """The addresses of the three functions, and what is before their names."""
    for prefix in PREFIXES:
        if all(hasattr(library, prefix + name) for name in FUNCTIONS):
            return {
                name: ctypes.cast(getattr(library, prefix + name), ctypes.c_void_p).value or 0
                for name in FUNCTIONS
            }, prefix
    raise BlasError(f"it lacks {', '.join(FUNCTIONS)}")


def _describe(library: ctypes.CDLL, prefix: str, path: str) -> str:
    """Have a library compute in one thread, and name it; one with integers of 64 bits is refused.

    More threads take cores from the screen, and wait for one another on a busy machine.
    """
    config = getattr(library, f"{prefix}openblas_get_config", None)
    if config is None:
        wide = getattr(library, "bli_info_get_blas_int_type_size", None)
        if wide is not None and wide() == 64:
            raise BlasError("its integers have 64 bits, MLX's have 32")
        if (set_threads := getattr(library, "bli_thread_set_num_threads", None)) is not None:
            set_threads(ctypes.c_int64(1))
        return Path(path).name
    config.restype = ctypes.c_char_p
    words = (config() or b"").decode("ascii", "replace").split()
    if "USE64BITINT" in words:
        raise BlasError("its integers have 64 bits, MLX's have 32")
    if (set_threads := getattr(library, f"{prefix}openblas_set_num_threads", None)) is not None:
        set_threads(1)
    return " ".join(words[:2]) or Path(path).name


class _Slots:
    """The slots of the MLX library that this process has loaded."""

    def __init__(self) -> None:
        self._before: dict[int, int] = {}
        """What stood in the slots before they were written, by address."""

    def write(self, functions: Mapping[str, int]) -> None:
        """Give the slots other functions.

        Args:
            functions: Addresses by name.

        Raises:
            BlasError: The slots are not what they should be; nothing was written then.
            ElfError, OSError: The library's file can't be read.
        """
        slots = self._find(functions)
        before = {address: _cell(address).value for address in slots.values()}
        for name, address in slots.items():
            _cell(address).value = functions[name]
        self._before = before

    def restore(self) -> None:
        """Put back what stood there."""
        for address, value in self._before.items():
            _cell(address).value = value
        self._before = {}

    def _find(self, functions: Mapping[str, int]) -> dict[str, int]:
        memory = mappings()
        mlx = next((each for each in memory if Path(each.path).name.startswith("libmlx.so")), None)
        if mlx is None or mlx.offset != 0:
            raise BlasError("MLX's library was not found in memory")
        offsets = jump_slots(mlx.path, FUNCTIONS)
        if len(offsets) < len(FUNCTIONS):
            raise BlasError("this MLX does not call a BLAS through slots")
        slots = {name: mlx.begin + offset for name, offset in offsets.items()}
        code = [each for each in memory if "x" in each.rights]
        for address in slots.values():
            if address % 8 or not _within(address, [m for m in memory if m.rights.startswith("rw")]):
                raise BlasError("the slots of MLX's library can't be written")
            if not _within(_cell(address).value, code):
                raise BlasError("the slots of MLX's library hold no functions")
        if not all(_within(address, code) for address in functions.values()):
            raise BlasError("its functions are no code")
        return slots


def _cell(address: int) -> ctypes.c_uint64:
    return ctypes.c_uint64.from_address(address)


def _within(address: int, parts: list[MemoryPart]) -> bool:
    return any(part.begin <= address < part.end for part in parts)


_slots = _Slots()
"""One for the process: there is one MLX in it."""


# ---- checking ---------------------------------------------------------------------------------


def check() -> None:
    """Compare MLX's products on the CPU with numpy's in float64.

    Raises:
        BlasError: One of them is off.
    """
    with mx.stream(mx.cpu):
        for what, error_of in _PRODUCTS.items():
            for dtype in (np.float32, np.float64, np.complex64):
                error = error_of(dtype)
                if not error <= TOLERANCE:
                    raise BlasError(f"its {what} of {np.dtype(dtype).name} are off by {error:.2g}")


def _check_overwriting(gemm: int) -> None:
    """Refuse a library that lets through what the memory of a result held: MLX hands it over as it comes.

    CBLAS says that with beta 0 it is not read. Libraries that multiplied it by 0 instead left NaN where NaN was; some
    did so in the product of a matrix and a vector alone. Called directly, since MLX's choice of memory isn't known.

    Args:
        gemm: Address of its `cblas_sgemm`.

    Raises:
        BlasError: It does.
    """
    multiply = _SGEMM(gemm)
    for rows, transposed in product((1, 3), (PLAIN, TRANSPOSED)):
        a, b = (_numbers(shape, np.float32, 11).astype(np.float32) for shape in ((rows, 70), (70, 50)))
        b = b.T.copy() if transposed == TRANSPOSED else b
        found = np.full((rows, 50), np.nan, np.float32)
        sizes = rows, 50, 70
        left, right, result = ((each.ctypes.data, each.shape[1]) for each in (a, b, found))
        multiply(ROW_MAJOR, PLAIN, transposed, *sizes, 1.0, *left, *right, 0.0, *result)
        if np.isnan(found).any():
            raise BlasError("its results keep NaN that was in their memory before")


def _error(found: mx.array, a: np.ndarray, b: np.ndarray, c: np.ndarray | float = 0.0) -> float:
    """Largest error of `found` against `a @ b + c`, relative to the same sum of absolute values."""
    exact, most = a @ b + c, np.abs(a) @ np.abs(b) + np.abs(c)
    return float(np.max(np.abs(np.asarray(found) - exact) / most))


def _numbers(shape: tuple[int, ...], dtype: type, seed: int) -> np.ndarray:
    """Numbers between -1 and 1 that both types hold exactly, none of them 0; MLX's, as numpy's take 10 ms to import."""
    parts = (2,) if dtype is np.complex64 else ()
    drawn = mx.random.randint(-64, 64, (*parts, *shape), key=mx.random.key(seed))
    values = (2.0 * np.array(drawn) + 1) / 128
    return np.asarray(values[0] + 1j * values[1]) if parts else values


def _plain(dtype: type) -> float:
    """Products of several sizes, also of one row, which may take another way."""
    errors = []
    for seed, (m, k, n) in enumerate(((1, 256, 96), (3, 17, 5), (33, 64, 31), (16, 1, 16))):
        a, b = _numbers((m, k), dtype, seed), _numbers((k, n), dtype, seed + 100)
        errors.append(_error(_array(a, dtype) @ _array(b, dtype), a, b))
    return max(errors)


def _rows(dtype: type) -> float:
    """One row, which takes a way of its own: by a matrix, by one transposed, by parts of them, and added to."""
    a, b, c = _numbers((1, 200), dtype, 8), _numbers((200, 90), dtype, 9), _numbers((1, 90), dtype, 10)
    row, plain, turned = _array(a, dtype), _array(b, dtype), _array(b.T.copy(), dtype).T
    part = (row[:, 20:150], a[:, 20:150], b[20:150, 3:80])
    added = mx.addmm(_array(c, dtype), row, turned, alpha=0.5, beta=-2.0)
    return max(
        _error(row @ plain, a, b),
        _error(row @ turned, a, b),
        _error(part[0] @ plain[20:150, 3:80], *part[1:]),
        _error(part[0] @ turned[20:150, 3:80], *part[1:]),
        _error(added, 0.5 * a, b, -2.0 * c),
    )


def _transposed(dtype: type) -> float:
    """Each side transposed, and both: MLX passes that on and copies nothing."""
    a, b = _numbers((48, 29), dtype, 1), _numbers((29, 37), dtype, 2)
    left, right = _array(a.T.copy(), dtype).T, _array(b.T.copy(), dtype).T
    tries = ((left, _array(b, dtype)), (_array(a, dtype), right), (left, right))
    return max(_error(x @ y, a, b) for x, y in tries)


def _strided(dtype: type) -> float:
    """Parts of larger matrices, whose rows are further apart than they are long, and several at once."""
    a, b = _numbers((2, 40, 60), dtype, 3), _numbers((2, 60, 50), dtype, 4)
    found = _array(a, dtype)[:, 4:30, 7:40] @ _array(b, dtype)[:, 7:40, 3:20]
    return max(_error(found[n], a[n, 4:30, 7:40], b[n, 7:40, 3:20]) for n in range(2))


def _scaled(dtype: type) -> float:
    """A multiple of a product on a multiple of what is there."""
    a, b, c = _numbers((12, 20), dtype, 5), _numbers((20, 9), dtype, 6), _numbers((12, 9), dtype, 7)
    found = mx.addmm(_array(c, dtype), _array(a, dtype), _array(b, dtype), alpha=0.5, beta=-2.0)
    return _error(found, 0.5 * a, b, -2.0 * c)


def _array(values: np.ndarray, dtype: type) -> mx.array:
    return mx.array(values.astype(dtype), dtype=getattr(mx, np.dtype(dtype).name))


_PRODUCTS: dict[str, Callable[[type], float]] = {
    "products": _plain,
    "products of one row": _rows,
    "products of transposed matrices": _transposed,
    "products of parts of matrices": _strided,
    "multiples of products": _scaled,
}


# ---- one row times a matrix --------------------------------------------------------------------
# A decode step multiplies one row of activations by each weight. OpenBLAS on x86-64 takes that for any product of two
# matrices and copies the weight into blocks first: 0.41 ms for one row by 768 x 2048 and 11.4 ms by 768 x 32,000, where
# its product of a matrix and a vector takes 0.07 and 2.8 ms. On ARM it sees to that by itself.
#
# Python can't stand between: MLX multiplies in threads of its own, which would wait for the interpreter at each
# product. So a few instructions do it. They look at the arguments of `cblas_sgemm`, and go on to the library's own or,
# where the first matrix is one plain row, to its `cblas_sgemv`, with the arguments in that one's order. Both are called
# as the System V ABI of x86-64 has it: of the six arguments on the stack, which belong to the function that is called,
# four stay or are overwritten in their place.

ROW_MAJOR, PLAIN, TRANSPOSED = 101, 111, 112
"""As CBLAS numbers them; in the instructions below as 0x65, 0x6F and 0x70."""

_CODE = (
    ("f3 0f 1e fa", "endbr64: may be called by address"),
    ("83 f9 01 75 5b", "cmp ecx, 1; jne gemm: one row?"),
    ("83 ff 65 75 56", "cmp edi, 101; jne gemm: row-major?"),
    ("83 fe 6f 75 51", "cmp esi, 111; jne gemm: the row is not transposed?"),
    ("44 89 c0", "mov eax, r8d: N"),
    ("83 fa 70 74 11", "cmp edx, 112; je rows: the matrix is N rows of K?"),
    ("83 fa 6f 75 44", "cmp edx, 111; jne gemm: it is K rows of N?"),
    ("44 89 ca 89 c1", "mov edx, r9d; mov ecx, eax: K rows, N columns"),
    ("be 70 00 00 00 eb 05", "mov esi, 112; jmp gemv: transposed"),
    ("89 c2 44 89 c9", "rows: mov edx, eax; mov ecx, r9d: N rows, K columns, not transposed (esi is 111)"),
    ("4c 8b 44 24 18", "gemv: mov r8, [rsp+24]: the matrix"),
    ("44 8b 4c 24 20", "mov r9d, [rsp+32]: numbers from one of its rows to the next"),
    ("4c 8b 54 24 28 4c 89 54 24 18", "mov r10, [rsp+40]; mov [rsp+24], r10: the result"),
    (
        "48 c7 44 24 10 01 00 00 00",
        "mov qword [rsp+16], 1: the row is at [rsp+8] already, its numbers side by side",
    ),
    ("48 c7 44 24 20 01 00 00 00", "mov qword [rsp+32], 1: and those of the result"),
    ("49 bb {gemv} 41 ff e3", "mov r11, gemv; jmp r11"),
    ("49 bb {gemm} 41 ff e3", "gemm: mov r11, gemm; jmp r11"),
)
"""Instructions, and what they do."""


@cache
def forwarded(gemm: int, gemv: int) -> int | None:
    """A function that is called as `cblas_sgemm`, and has one row multiplied by `cblas_sgemv`.

    Args:
        gemm: Address of the library's `cblas_sgemm`, with integers of 32 bits.
        gemv: Address of its `cblas_sgemv`.

    Returns:
        Its address; None on other machines, or where the system lets no memory be executed.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return None
    code = instructions(gemm, gemv)
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        return None
    # MLX may call it until the process has ended, after Python has let go of all that it knows of
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    return address


def instructions(gemm: int, gemv: int) -> bytes:
    """The machine code, for two functions by their addresses."""
    places = {"gemm": gemm.to_bytes(8, "little").hex(), "gemv": gemv.to_bytes(8, "little").hex()}
    return b"".join(bytes.fromhex(line.format(**places)) for line, _ in _CODE)


# ---- where a library keeps the addresses of the functions that it calls in others --------------

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_PLTREL, _DT_JMPREL, _DT_RELA = 2, 5, 6, 20, 23, 7
_JUMP_SLOT = {62: 7, 183: 1026}
"""Number of the relocation of a called function, by machine: x86-64 and AArch64."""
_RELA = struct.Struct("<QQq")


class ElfError(Exception):
    """The file is not a shared library of the expected form."""


class MemoryPart(Struct, frozen=True):
    """A part of this process's memory."""

    begin: int
    end: int
    rights: str
    """As `rw-p`."""
    offset: int
    """In the file."""
    path: str
    """Empty where no file is behind it."""


def mappings() -> list[MemoryPart]:
    """All of this process's memory, by address (Linux)."""
    found = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        span, rights, offset, _, _, *path = line.split(maxsplit=5)
        begin, _, end = span.partition("-")
        found.append(
            MemoryPart(int(begin, 16), int(end, 16), rights, int(offset, 16), path[0] if path else "")
        )
    return found


def jump_slots(path: str, names: Collection[str]) -> dict[str, int]:
    """Find the slots through which a library calls some functions of other libraries.

    It reads the tables that the dynamic linker reads (System V ABI, "Dynamic Linking"), not the section headers, which
    may have been stripped.

    Args:
        path: A shared library, ELF of 64 bits, little-endian.
        names: Of the functions.

    Returns:
        The slot's address relative to the library's base, by name; functions that it doesn't call are missing.

    Raises:
        ElfError: The file is of another form.
        OSError: It can't be read.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return dict(_slots_in(_Library(data), set(names)))
    except (struct.error, IndexError, StopIteration, ValueError) as error:
        raise ElfError(f"{path} is cut short or not of the expected form ({error})") from error


class _Library:
    """The headers of one file."""

    def __init__(self, data: mmap.mmap) -> None:
        if data[:6] != b"\x7fELF\x02\x01":
            raise ElfError("it is not an ELF file of 64 bits")
        self.data = data
        kind, machine = struct.unpack_from("<HH", data, 16)
        if kind != 3 or machine not in _JUMP_SLOT:
            raise ElfError("it is no shared library for x86-64 or AArch64")
        self.jump_slot = _JUMP_SLOT[machine]
        (headers,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
        self._segments = [
            struct.unpack_from("<IIQQQQ", data, headers + size * number) for number in range(count)
        ]
        if not any(kind == _PT_LOAD and address == 0 for kind, _, _, address, _, _ in self._segments):
            raise ElfError("it is not linked for address 0")

    def at(self, address: int) -> int:
        """The place in the file of an address."""
        for kind, _, offset, begin, _, size in self._segments:
            if kind == _PT_LOAD and begin <= address < begin + size:
                return int(offset + address - begin)
        raise ElfError(f"its address {address:#x} is not in the file")

    def dynamic(self) -> dict[int, int]:
        """The table for the dynamic linker, by tag."""
        place, size = next((s[2], s[5]) for s in self._segments if s[0] == _PT_DYNAMIC)
        pairs = struct.iter_unpack("<qQ", self.data[place : place + size - size % 16])
        return {tag: value for tag, value in pairs if tag}

    def name(self, names: int, symbols: int, number: int) -> str:
        """The name of a symbol."""
        (start,) = struct.unpack_from("<I", self.data, symbols + 24 * number)
        place = names + int(start)
        return self.data[place : self.data.find(b"\0", place)].decode("ascii", "replace")


def _slots_in(library: _Library, names: set[str]) -> Iterator[tuple[str, int]]:
    table = library.dynamic()
    if _DT_JMPREL not in table or table.get(_DT_PLTREL) != _DT_RELA:
        raise ElfError("it calls nothing through slots")
    strings, symbols = library.at(table[_DT_STRTAB]), library.at(table[_DT_SYMTAB])
    begin, size = library.at(table[_DT_JMPREL]), table[_DT_PLTRELSZ]
    for address, info, _ in _RELA.iter_unpack(library.data[begin : begin + size - size % _RELA.size]):
        if info & 0xFFFFFFFF == library.jump_slot:
            name = library.name(strings, symbols, info >> 32)
            if name in names:
                yield name, address
