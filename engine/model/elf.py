"""Where a shared library of this process keeps the addresses of the functions that it calls in others."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Iterator
from pathlib import Path

from engine.frozen import frozen

_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_PLTRELSZ, _DT_STRTAB, _DT_SYMTAB, _DT_PLTREL, _DT_JMPREL, _DT_RELA = 2, 5, 6, 20, 23, 7
_JUMP_SLOT = {62: 7, 183: 1026}
"""Number of the relocation of a called function, by machine: x86-64 and AArch64."""
_RELA = struct.Struct("<QQq")


class ElfError(Exception):
    """The file is not a shared library of the expected form."""


@frozen
class Mapping:
    """A part of this process's memory."""

    begin: int
    end: int
    rights: str
    """As `rw-p`."""
    offset: int
    """In the file."""
    path: str
    """Empty where no file is behind it."""


def mappings() -> list[Mapping]:
    """All of this process's memory, by address (Linux)."""
    found = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        span, rights, offset, _, _, *path = line.split(maxsplit=5)
        begin, _, end = span.partition("-")
        found.append(Mapping(int(begin, 16), int(end, 16), rights, int(offset, 16), path[0] if path else ""))
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
            return dict(_slots(_Library(data), set(names)))
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


def _slots(library: _Library, names: set[str]) -> Iterator[tuple[str, int]]:
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
