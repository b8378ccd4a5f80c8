"""The comparison of two checkouts: which values it names, what it masks, and which differences it accepts."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from tests.compare_with import results
from tests.compare_with.scenarios import scenarios

STEP = {
    "event": "step",
    "logprob": -0.1431274116039276,
    "candidates": [{"id": 14, "prob": 0.7987}, {"id": 397, "prob": 0.1914}],
    "kv": {"offset": 5},
    "ms": {"total": 12.5},
    "text": " was",
    "grammar": None,
}
ROW = " ▶     1 ␣there          19.14 %   2.39   15.3    40 KiB"
HEADS = "       # token                 p   bits     ms        KV"


def json_lines(*changes: dict[str, object]) -> results.Output:
    """The output of a step for each of some changes."""
    text = "\n".join(json.dumps({**STEP, **change}) for change in changes)
    return {"out": results.from_json_lines(text, "generate-greedy")}


def painted(*rows: str, style: str = "white on black") -> results.Output:
    """A screen of one style."""
    cells: list[results.Cells] = [[(char, style) for char in row] for row in rows]
    return {"screen one": results.masked_cells(cells, "screen-tabs")}


def differing(other: results.Output, this: results.Output, rules: str = "") -> list[tuple[str, str, str]]:
    """Name and both values of each difference."""
    own = results.read_rules(f"# a reason\n{rules}")
    return [each[1:] for each in results.compare("generate-greedy", other, this, own)]


# ---- values ---------------------------------------------------------------------------------------


def test_values_of_json_lines_have_the_event_and_the_path_as_their_name() -> None:
    assert json_lines({}, {"grammar": [True]})["out"] == {
        "step[0].event": "step",
        "step[0].logprob": "-0.1431274116039276",
        "step[0].candidates[0].id": "14",
        "step[0].candidates[0].prob": "0.7987",
        "step[0].candidates[1].id": "397",
        "step[0].candidates[1].prob": "0.1914",
        "step[0].kv.offset": "5",
        "step[0].ms.total": "#",
        "step[0].text": " was",
        "step[0].grammar": "null",
        "step[1].event": "step",
        "step[1].logprob": "-0.1431274116039276",
        "step[1].candidates[0].id": "14",
        "step[1].candidates[0].prob": "0.7987",
        "step[1].candidates[1].id": "397",
        "step[1].candidates[1].prob": "0.1914",
        "step[1].kv.offset": "5",
        "step[1].ms.total": "#",
        "step[1].text": " was",
        "step[1].grammar[0]": "true",
    }


def test_what_a_beam_search_does_not_use_is_left_out_there_alone() -> None:
    text = json.dumps({"event": "Prefilled", "next": {"picked": 5}, "tokens": 3, "tpot": {"mean": 1.5}})
    beam, generate = (results.from_json_lines(text, scenario) for scenario in ("beam", "generate-greedy"))
    assert beam == {
        "Prefilled[0].event": "Prefilled",
        "Prefilled[0].tokens": "3",
        "Prefilled[0].tpot.mean": "#",
    }
    assert generate == beam | {"Prefilled[0].next.picked": "5"}


def test_a_table_has_its_columns_as_names() -> None:
    assert results.from_csv("step,prob,ms,text\n1,0.25,7.5,a\n", "x") == {
        "row[0].step": "1",
        "row[0].prob": "0.25",
        "row[0].ms": "#",
        "row[0].text": "a",
    }


def test_a_page_has_the_values_of_its_data_and_its_lines() -> None:
    page = '<p>one\n<script type="application/json" id="data">{"probs": [0.5], "ms": [3]}</script>\ntwo'
    found = results.from_page(page, "x")
    assert found["data"] == {"data.probs[0]": "0.5", "data.ms[0]": "#"}
    assert found["lines"] == ["<p>one", '<script type="application/json" id="data"></script>', "two"]


# ---- masks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "masked"),
    [
        ("each token  5.9 ms (p50 5.8 ms), 169 tok/s, pipelined", "each token #, (p50 #), #, pipelined"),
        ("memory      31.5 MiB at its peak", "memory # at its peak"),
        ("*Recorded by mlx-inspector 0.1.0 · 2026-11-29 02:53 UTC*", "*Recorded by mlx-inspector # · #*"),
        ("KV cache    64 tokens, 512 KiB of 2 MiB", None),
        ("logprob -1.16171  prob 31.30 %  rank 2  4.04 bits  seed 7  step 9", None),
        ("perplexity 3.16 · 1.66 bits a token · model entropy 0.81 bits", None),
        ("sampling T 1.2, min-p 0.02, top-p 0.9, min-tokens 30  seed 2026112922", None),
        ("206c6f7665 20616e64 20261129 9c20260612349e", None),
        ("20261129-025312-pocket.jsonl  2026-11-29T02:53:12+00:00", "#-pocket.jsonl #"),
        ("tokens left  4,096  3  3 · chance cut −0.2 % · draw 0.921", None),
    ],
)
def test_times_and_memory_are_masked_and_what_a_model_computes_is_not(line: str, masked: str | None) -> None:
    assert results.masked_text(line, "screen-tabs") == (
        line if masked is None else masked.replace("#, (", "# (")
    )


@pytest.mark.parametrize(
    "name", ["logprob", "kv.offset", "prob", "entropy_bits", "seed", "used_bytes", "position"]
)
def test_numbers_of_the_model_are_not_masked(name: str) -> None:
    assert results.masked_value(f"step[1].{name}", 0.1 + 0.2, "generate-greedy") == "0.30000000000000004"


def test_of_a_row_of_steps_only_the_time_is_masked() -> None:
    before = painted(HEADS, ROW)
    assert differing(before, painted(HEADS, ROW.replace("15.3", " 7.2"))) == []
    for number in ("19.14", "2.39", "40 KiB", "1 ␣"):
        other = ROW.replace(number, f"3{number[1:]}")
        assert differing(before, painted(HEADS, other)), number


def test_inside_the_panel_of_times_nothing_is_compared_and_around_it_all_is() -> None:
    rows = ["│ a ││ KV 5 │", "╭ b ╮╭─ Time ──╮", "│ 1 ││ ▂▃▇ │ x  │", "╰───╯╰─────────╯"]
    assert differing(painted(*rows), painted(*(row.replace("▂▃▇", "▇▃▂") for row in rows))) == []
    assert differing(painted(*rows), painted(*(row.replace("│ 1", "│ 2") for row in rows)))


# ---- differences ----------------------------------------------------------------------------------


def test_one_digit_of_one_value_is_a_difference() -> None:
    changed = json_lines({"logprob": -0.1431274116039277})
    assert differing(json_lines({}), changed) == [
        ("out step[0].logprob", "-0.1431274116039276", "-0.1431274116039277")
    ]


def test_a_value_that_one_side_lacks_is_a_difference() -> None:
    extra = json_lines({"new": 1})
    assert differing(json_lines({}), extra) == [("out step[0].new", results.MISSING, "1")]
    assert differing(extra, json_lines({})) == [("out step[0].new", "1", results.MISSING)]


def test_a_line_that_was_put_in_is_one_difference() -> None:
    before: results.Output = {"err": ["one", "two", "three"]}
    assert differing(before, {"err": ["one", "and", "two", "three"]}) == [
        ("err line 2", results.MISSING, "and")
    ]


def test_a_color_is_a_difference() -> None:
    assert differing(painted("ab"), painted("ab", style="red on black")) == [
        ("screen one row 1 colors from column 1", "'ab' white on black", "'ab' red on black")
    ]


def test_a_cursor_that_blinks_is_no_difference_and_one_that_moved_is() -> None:
    plain = "white on black"
    first, second = (
        [[("a", one), ("b", two)]] for one, two in (("black on e0e0e0", plain), (plain, "black on e0e0e0"))
    )
    assert differing({"screen": first}, {"screen": [[("a", plain), ("b", plain)]]}) == []
    assert differing({"screen": first}, {"screen": second})


def test_what_a_dialog_leaves_of_the_line_of_times_is_masked() -> None:
    line = "╰─ perplexity 3.08 ─╯ {} "
    assert differing(painted(line.format("Time step 4 took")), painted(line.format("st token"))) == []
    assert differing(painted("╰─ 3.08 ─╯ │ 4 │"), painted("╰─ 3.08 ─╯ │ 5 │"))


def test_the_color_of_a_space_is_its_background() -> None:
    space = results.from_cells([[(" ", "red", "black", False, False, False, False, False)]], "x")
    assert space == results.from_cells([[(" ", "blue", "black", True, False, False, False, False)]], "x")
    assert space != results.from_cells([[(" ", "red", "white", False, False, False, False, False)]], "x")


def test_a_process_that_ends_differently_is_a_difference() -> None:
    assert differing({"exit": ["status 0"]}, {"exit": ["status 1"]}) == [
        ("exit line 1", "status 0", "status 1")
    ]
    failed: results.Output = {"exit": [f"{results.FAILED}: does not end"]}
    assert differing(failed, failed)


# ---- accepted differences ---------------------------------------------------------------------------


def test_a_renamed_value_is_still_compared() -> None:
    rule = "rename * *.kv.offset -> *.cache.length"
    there = json_lines({"kv": 0, "cache": {"length": 5}})
    del there["out"]["step[0].kv"]  # type: ignore[arg-type]
    assert differing(json_lines({}), there, rule) == []
    there["out"] |= {"step[0].cache.length": "6"}  # type: ignore[operator]
    assert differing(json_lines({}), there, rule) == [("out step[0].cache.length", "5", "6")]


def test_words_that_became_others_are_accepted_in_lines_values_and_on_the_screen() -> None:
    rule = 'text * "tokens left" -> "tokens kept"'
    for made in (
        lambda words: {"err": [f"a {words}  3"]},
        lambda words: json_lines({"text": words}),
        lambda words: painted(f"│ {words}   3 │"),
    ):
        assert differing(made("tokens left"), made("tokens kept"), rule) == []
        assert differing(made("tokens left"), made("tokens cut!"), rule)


def test_a_rule_is_about_its_scenarios_and_names() -> None:
    extra = json_lines({"new": 1})
    assert differing(json_lines({}), extra, "add generate-* out step[*].new") == []
    assert differing(json_lines({}), extra, "add score out step[*].new")
    assert differing(json_lines({}), extra, "drop * out step[*].new")
    assert differing(extra, json_lines({}), "drop * *new") == []
    assert differing(json_lines({}), json_lines({"text": "x"}), "accept * out *.text") == []


def test_a_rule_counts_what_it_matched() -> None:
    rules = results.read_rules("# why\nadd * *new\nadd * *other\n")
    results.compare("x", json_lines({}), json_lines({"new": 1}), rules)
    assert [rule.matched for rule in rules] == [1, 0]


@pytest.mark.parametrize("text", ["add * x", "# why\n\nadd * x", "# why\nforget * x", "# why\nrename * x"])
def test_a_rule_needs_a_reason_and_a_form(text: str) -> None:
    with pytest.raises(results.RuleError):
        results.read_rules(text)


# ---- neutrality -------------------------------------------------------------------------------------


def test_the_comparison_imports_nothing_of_the_program() -> None:
    here = Path(__file__).parent
    paths = [here / "terminal_screen.py", *(here / "compare_with").glob("*.py")]
    found = {
        name.partition(".")[0]
        for path in paths
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([each.name for each in node.names] if isinstance(node, ast.Import) else [node.module])
    }
    assert not found & {"engine", "inspector"}


def test_a_scenario_has_a_name_of_its_own() -> None:
    names = [each.name for each in scenarios()]
    assert len(names) == len({*names}) > 50
