"""Memory of the process, as steps tell it."""

from __future__ import annotations

import time

from engine import memory as resident


def test_resident_bytes_grow_with_what_is_held():
    before = resident.resident()
    held = bytearray(64 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    assert resident.resident() >= before + 32 * 2**20
    del held


def test_a_system_without_the_file_tells_the_most_so_far(monkeypatch):
    monkeypatch.setattr(resident, "STATM", "/nowhere")
    assert resident.reader()() >= 2**20


def test_reading_it_costs_next_to_nothing():
    begun = time.perf_counter()
    for _ in range(1000):
        resident.resident()
    assert (time.perf_counter() - begun) / 1000 < 200e-6  # about 2 us; a busy machine is forgiven
