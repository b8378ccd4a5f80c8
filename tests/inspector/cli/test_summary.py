"""The text of a completion as far as it is certain."""

from __future__ import annotations

from inspector.cli.summary import Completion


def test_what_may_become_a_stop_string_is_held_back() -> None:
    completion = Completion(["stop", "ox"])
    assert completion.add("a st") == "a "
    assert completion.add("o") == ""
    assert completion.add("ve. b") == "stove. b"
    assert completion.add("o") == ""
    assert completion.close() == "o"
    assert completion.text == "a stove. bo"


def test_the_earliest_stop_string_cuts() -> None:
    completion = Completion(["bc", "b"])
    assert completion.add("abcd") == "a"
    assert completion.close() == ""
    assert completion.text == "a"


def test_a_self_overlapping_stop_string() -> None:
    completion = Completion(["aab"])
    assert completion.add("aa") + completion.add("a") + completion.add("c") == "aaac"
    assert completion.add("aaa") + completion.add("b!") + completion.close() == "a"
