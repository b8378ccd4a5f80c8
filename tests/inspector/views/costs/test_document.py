"""The costs of a step as lines of text."""

from __future__ import annotations

from engine.protocol import KVCompared, KVCost, Profiled, ProfilePart, RooflineMeasured, Work
from inspector.blocks.paint import plain_lines
from inspector.documents.costs import by_role, document

PROFILED = Profiled(
    node=9, tokens=40, repeats=5, fenced_ms=10.0, unfenced_ms=8.0, how="As it was.",
    parts=(
        ProfilePart("model.embed", "embedding", None, 0.5),
        ProfilePart("model.layers.0.norm", "norm", 0, 0.5),
        ProfilePart("model.layers.0.attn", "attention", 0, 3.0),
        ProfilePart("model.layers.0.mlp", "mlp", 0, 4.0),
        ProfilePart("model.layers.0.strange", "other", 0, 0.5),
        ProfilePart("model.norm", "norm", None, 0.5),
    ),
)  # fmt: skip
COST = KVCost(16, None, 4096, 4096, 8192, 0.0, 0.0, True, 5.0)


def test_parts_are_summed_by_what_they_do_and_the_unknown_ones_keep_their_path() -> None:
    assert by_role(PROFILED) == [
        ("embedding", 0.5), ("norms", 1.0), ("attention", 3.0), ("MLP", 4.0), ("model.layers.0.strange", 0.5),
        ("other", 1.0),
    ]  # fmt: skip
    assert sum(ms for _, ms in by_role(PROFILED)) == PROFILED.fenced_ms
    head, whole, *rows = plain_lines(document(PROFILED))
    assert head == "One step after 40 tokens"
    assert whole == "whole step 8.0 ms   part by part 10.0 ms   measuring adds 25 %"
    assert next(row for row in rows if row.startswith("MLP")).split()[:4] == ["MLP", "4.000", "ms", "40.00"]
    layer = next(row for row in rows if row.split()[:1] == ["1"])
    assert layer.split()[:6] == ["1", "0.500", "3.000", "4.000", "0.500", "8.000"]


def test_the_roofline_tells_both_forwards_and_the_limits() -> None:
    decode = Work(1, 41, 10_000_000, 0, 20_000_000, 10.0, 11.0)
    prefill = Work(40, 40, 10_000_000, 0, 800_000_000, 100.0, 110.0)
    found = RooflineMeasured(
        9, 4.0, "an array", 16.0, "a product", decode, prefill, 10_000_000, "So.", ("A note.",)
    )
    text = " ".join(" ".join(plain_lines(document(found))).split())
    assert "2 operations a byte, 2 GFLOP/s, 25 % of the roof" in text  # 2 of min(16, 4 x 2) GFLOP/s
    assert "at 1 GB/s, 20 M operations" in text
    assert "80 operations a byte, 8 GFLOP/s, 50 % of the roof" in text
    assert "ridge 4 operations a byte" in text
    assert "note A note." in text
    assert "● decode" in text


def test_quantized_kv_is_told_or_refused() -> None:
    eight = KVCost(8, 64, 2176, 2176, 4352, 0.25, 0.05, False, 6.0, note="Some stay.")
    four = KVCost(4, None, 0, 0, 0, 0.0, 0.0, False, 0.0, refused="The heads have 16 numbers.")
    lines = [*plain_lines(document(KVCompared(9, 41, (COST, eight, four), "words", True)))]
    assert lines[2].split()[:8] == ["16", "bits", "·", "4", "KiB", "4", "KiB", "8"]
    assert lines[3].split()[9:12] == ["0.25", "0.05", "different"]
    assert "4 bits       The heads have 16 numbers." in lines
    assert "note         Some stay." in lines
