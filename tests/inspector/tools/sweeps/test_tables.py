"""Sweeps as tables of characters."""

from __future__ import annotations

from engine.protocol import Figure, Machine, SweepPoint, Swept
from inspector.tools.sweeps import tables

MACHINE = Machine("Linux 6", "A processor", 2, 8 * 2**30, "3.12.1", "0.32.4", "0.32.2", "cpu")
SWEPT = Swept(
    MACHINE, "pocket", "llama", 7_344_384, "bfloat16", None, 3,
    (
        SweepPoint("ttft", 16, (Figure("TTFT", "ms", (10.0, 12.0, 11.0)), Figure("KV used", "bytes", (65536,) * 3))),
        SweepPoint("ttft", 1024, (Figure("TTFT", "ms", (110.0,) * 3), Figure("KV used", "bytes", (2**22,) * 3))),
        SweepPoint("inspection", 16, (Figure("run", "times", (1.1, 1.0, 1.2)),)),
    ),
    (("ttft", "as told"), ("inspection", "in turn")), ("batch can't be measured",), 1234.0,
)  # fmt: skip


def test_a_table_has_bars_medians_and_spread() -> None:
    lines = tables.tables(SWEPT).splitlines()
    assert lines[0] == "pocket: llama, 7.34 M parameters, bfloat16, on cpu"
    assert "medians of 3 rounds" in lines[2]
    first, last = (next(line for line in lines if f" {at} " in line) for at in ("16", "1,024"))
    assert "11.0 ms (10.0-12.0)" in first
    assert "64 KiB" in first
    assert "110 ms" in last
    assert last.count("█") == tables.BAR
    assert first.count("█") == 1
    assert any(line.split() == ["run", "1.10", "times", "(1.00-1.20)"] for line in lines)
