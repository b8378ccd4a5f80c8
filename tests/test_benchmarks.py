"""The tables of the page of figures: made of the file that the benchmarks write, whose rows name what measures them."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.benchmarks import table
from tests.benchmarks.table import BENCHMARKS, ROWS, Row
from tests.benchmarks.vocabularies import Asked, main_of

LONG = {"dialogs", "start", "race", "matrices", "memory", "peers"}
"""Benchmarks that have no small model, or take long with it, too."""


def test_the_page_tells_what_the_file_has() -> None:
    """Otherwise: `python -m tests.benchmarks --table`."""
    text = table.PAGE.read_text(encoding="utf-8")
    assert text == table.page(text, table.kept())
    for row in ROWS:
        if row.what in table.kept():
            assert table.told(row, table.kept()[row.what]["values"]) in text


def test_what_is_kept_is_all_that_a_row_tells() -> None:
    names = {row.what: row.names for row in ROWS}
    assert len(names) == len(ROWS)
    for what, entry in table.kept().items():
        assert sorted(entry["values"]) == sorted(names[what])
        assert "/" not in entry["machine"]


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_a_row_names_a_module_that_measures(benchmark: str) -> None:
    module = ast.parse((Path(table.__file__).parent / f"{benchmark}.py").read_text(encoding="utf-8"))
    main = next(each for each in module.body if isinstance(each, ast.FunctionDef) and each.name == "main")
    assert ast.unparse(main.args) == "asked: Asked"
    assert main.returns is not None
    assert ast.unparse(main.returns) == "Figures"


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", sorted({*BENCHMARKS, "turn"} - LONG))
def test_a_benchmark_finds_what_its_rows_tell(benchmark: str, tmp_path: Path) -> None:
    """On the smallest model, a few times."""
    figures = main_of(benchmark, Asked(tmp_path, ("4k",), 2))
    assert figures
    told = [name.split() for row in ROWS if row.benchmark == benchmark for name in row.names]
    wanted = {" ".join(["4k", *rest]) for model, *rest in told if model in ("pocket", "4k")}
    assert wanted <= figures.keys()


def test_a_row_is_written_anew_when_all_of_it_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = (Row("one", "a", "{x:.2f} of {y} s"), Row("one", "b", "{z}"), Row("two", "c", "{x}"))
    file = tmp_path / "figures.json"
    old = {"values": {"z": 3}, "on": "2001-01-01", "machine": "old", "load": "quiet"}
    file.write_text(json.dumps({"b": old}))
    monkeypatch.setattr(table, "FIGURES", file)
    monkeypatch.setattr(table, "ROWS", rows)
    lines = [*table.keep("one", {"x": (0.5, 1), "y": 2113.4}, on="today", machine="new", load="load 1.0")]
    assert lines == ["a | 0.50 to 1.00 of 2,113 s", "b: left as it was, for want of z"]
    made = table.page("<!-- figures -->\nx\n<!-- end of figures -->", table.kept())
    assert made.splitlines()[1:] == [
        "A: new.",
        "B: old.",
        "",
        "| what | figure | command | measured |",
        "|---|---|---|---|",
        "| a | 0.50 to 1.00 of 2,113 s | `python -m tests.benchmarks.one` | today, A, load 1.0 |",
        "| b | 3 | `python -m tests.benchmarks.one` | 2001-01-01, B, quiet |",
        "<!-- end of figures -->",
    ]
