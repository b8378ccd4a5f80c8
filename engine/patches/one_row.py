"""One row times a matrix, computed as the product of a matrix and a vector, on a Linux CPU with x86-64.

Reason: a decode step multiplies one row of activations by each weight. OpenBLAS on x86-64 treats that as a product of
two matrices and copies the weight into blocks first: 17.8 ms for one row by 768 x 32,000; its product of a matrix and a
vector takes 7.6. Gain: a decode step of the bundled model takes 0.5 to 0.75 of the time. Upstream: no issue is known;
OpenBLAS does the same by itself on ARM, and MLX could call `cblas_sgemv` for one row.

MLX multiplies in its own threads, which would wait for the Python interpreter at each product. So a few machine
instructions check the arguments of `cblas_sgemm`, and jump to the library's function or, for one plain row, to its
`cblas_sgemv`, with the arguments in that function's order. Both follow the System V ABI of x86-64: the six arguments on
the stack belong to the called function, and four of them stay or are overwritten in place.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
from functools import cache

from engine.patches import allowed

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
    ("48 c7 44 24 10 01 00 00 00", "mov qword [rsp+16], 1: the row is at [rsp+8], its numbers side by side"),
    ("48 c7 44 24 20 01 00 00 00", "mov qword [rsp+32], 1: and those of the result"),
    ("49 bb {gemv} 41 ff e3", "mov r11, gemv; jmp r11"),
    ("49 bb {gemm} 41 ff e3", "gemm: mov r11, gemm; jmp r11"),
)
"""Instructions, and what they do; CBLAS numbers row-major matrices 101, plain ones 111, transposed ones 112."""


@cache
def forwarded(gemm: int, gemv: int) -> int:
    """A function that is called like `cblas_sgemm`, and multiplies one row with `cblas_sgemv`.

    Args:
        gemm: Address of the library's `cblas_sgemm`, with integers of 32 bits.
        gemv: Address of its `cblas_sgemv`.

    Returns:
        Its address; that of `cblas_sgemm` on other machines, or if the system doesn't allow executable memory.
    """
    if not allowed("one_row") or platform.machine() != "x86_64":
        return gemm
    places = {"gemm": gemm.to_bytes(8, "little").hex(), "gemv": gemv.to_bytes(8, "little").hex()}
    memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    memory.write(b"".join(bytes.fromhex(line.format(**places)) for line, _ in _CODE))
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if protect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC) != 0:
        return gemm
    # MLX may call it until the process has ended, when Python has already freed its objects
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
    return address
