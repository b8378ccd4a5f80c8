"""Mistyped subcommands and flags: one line with what was probably meant, and status 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from inspector.cli.flags import FOREIGN, parsed
from inspector.cli.flags import WORDS as FOREIGN_WORDS
from inspector.cli.main import SUBCOMMANDS, _parsers
from tests.inspector.cli.scripted import Complaint

FLAGS = [
    ("--temperature 0.5", "inspector has no flag --temperature. Did you mean --temp?"),
    ("generate -p x --temperature=0.5", "inspector generate has no flag --temperature. Did you mean --temp?"),
    ("generate --tempratur 1", "inspector generate has no flag --tempratur. Did you mean --temp?"),
    ("generate --max-new-tokens 4", "inspector generate has no flag --max-new-tokens. Did you mean --max-tokens"),
    ("generate --max_tokens 4", "inspector generate has no flag --max_tokens. Did you mean --max-tokens?"),
    ("lesson run my.md --plain", "inspector lesson has no flag --plain. --plain is a flag of inspector learn."),
    ("generate --max-tok 4", "inspector generate has no flag --max-tok. Did you mean --max-tokens?"),
    ("--top_p .9", "inspector has no flag --top_p. Did you mean --top-p?"),
    ("--Top-P .9", "inspector has no flag --Top-P. Did you mean --top-p?"),
    ("-temp 1", "inspector has no flag -temp. Did you mean --temp?"),
    ("-prompt x", "inspector has no flag -prompt. Did you mean --prompt?"),
    ("generate -n 5", "inspector generate has no flag -n. Did you mean --max-tokens?"),
    ("beam --num-beams 3", "inspector beam has no flag --num-beams. Did you mean --width?"),
    ("show race --form 3", "inspector show race has no flag --form. Did you mean --from?"),
    ("score --json-lines f", "inspector score has no flag --json-lines. Did you mean --jsonl?"),
    ("score --sumary", "inspector score has no flag --sumary. Did you mean --summary?"),
    ("replay --sped 2", "inspector replay has no flag --sped. Did you mean --speed?"),
    ("export --format md", "inspector export has no flag --format. Did you mean --to?"),
    ("sessions --jsnol", "inspector sessions has no flag --jsnol. Did you mean --jsonl?"),
    ("show time --repeat 1", "inspector show time has no flag --repeat. Did you mean --repeats?"),
    ("generate --num-beams 4", "inspector generate has no flag --num-beams. --width is a flag of inspector beam, "),
    ("sessions --tmep 1", "inspector sessions has no flag --tmep. --temp is a flag of inspector, "),
    ("generate --nonesuch", "inspector generate has no flag --nonesuch. See `inspector generate --help`."),
    ("generate -p x --stop --foo", "--stop: expected one argument. A value that begins with - is given as --stop="),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "said"), FLAGS)
def test_a_flag_that_is_none_is_answered_with_the_one_that_was_meant(
    typed: str, said: str, complaint: Complaint
) -> None:
    assert complaint(*typed.split()).startswith(said)


WORDS = [
    (["genrate", "-p", "hi", "--jsonl"], "'genrate' is neither a model nor a subcommand of inspector. "
                 "Did you mean inspector generate?"),
    (["Beam"], "'Beam' is neither a model nor a subcommand of inspector. Did you mean inspector beam?"),
    (["compare", "a", "b"], "subcommand of inspector. Type: inspector diff A B"),
    (["help"], "'help' is neither a model nor a subcommand of inspector. Type: inspector --help"),
    (["my talk.trace.zst"], "subcommand of inspector. Did you mean inspector replay 'my talk.trace.zst'?"),
    (["Once upon a time"], "nor a subcommand of inspector. A prompt is given with -p: inspector -p 'Once upon a time'"),
    (["x " * 50], "A prompt is given with -p: inspector -p TEXT"),
    (["--temp", "1", "hello"], "'hello' is neither a model nor a subcommand of inspector. "
                               "A prompt is given with -p: inspector -p hello"),
    (["generate", "a b"], "inspector generate takes no 'a b'. A prompt is given with -p: inspector generate -p 'a b'"),
    (["beam", "a b"], "inspector beam takes no 'a b'. A prompt is given with -p: inspector beam -p 'a b'"),
    (["show", "race", "a b"], "show race takes no 'a b'. A prompt is given with -p: inspector show race -p 'a b'"),
    (["score", "a b"], "There is no file 'a b'. Check the path's spelling, or give the text itself with -p TEXT."),
    (["generate", "-p", "Once", "upon", "a"], "generate takes no 'upon'. Put a prompt of several words in quotes."),
    (["generate", "-p", "x", "--", "y"], "inspector generate takes no 'y'."),
    (["generate", "a/b"], "takes no 'a/b'. A model is given with --model: inspector generate --model a/b"),
    (["no/such/place"], "'no/such/place' is neither a model nor a subcommand of inspector. A prompt is given with -p"),
    (["show", "race", "pocket"], "no 'pocket'. A model is given with --model: inspector show race --model pocket"),
    (["--model", "pocket", "generate"], "takes no 'generate'. Put generate first: inspector generate ..."),
    (["keys"], "Type: inspector --keys"),
    (["inside", "-p", "x"], "Type: inspector show VIEW"),
    (["record", "x"], "Type: mitmdump --mode reverse:URL"),
    (["--jsonl"], "--jsonl has no effect on the screen. Use inspector generate, or add --keys."),
    (["replay", "a", "b"], "inspector replay takes no 'b'. See `inspector replay --help`."),
    ([""], "inspector takes no ''. See `inspector --help`."),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "said"), WORDS)
def test_a_word_that_stands_alone_is_answered_with_how_it_is_given(
    typed: list[str], said: str, complaint: Complaint
) -> None:
    assert said in complaint(*typed)


def test_a_file_is_pointed_at_the_flag_that_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complaint: Complaint
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a story.txt").write_text("x")
    assert "--prompt-file: inspector --prompt-file 'a story.txt'" in complaint("a story.txt")
    batch = "inspector batch --prompt-file 'a story.txt', and --lines if each line of it is a prompt"
    assert batch in complaint("batch", "a story.txt")
    assert "with --text: inspector diff --text 'a story.txt'" in complaint(
        "diff", "pocket", "pocket", "a story.txt"
    )


def test_what_is_suggested_is_there() -> None:
    flags = {name for parser in _parsers().values() for name in parser._option_string_actions}
    assert {wanted.partition(" ")[0] for wanted in FOREIGN.values()} <= flags
    assert not set(FOREIGN) & flags
    assert not FOREIGN_WORDS.keys() & SUBCOMMANDS.keys()
    named = {typed.split()[1] for typed in FOREIGN_WORDS.values() if typed.startswith("inspector ")}
    assert named <= {*SUBCOMMANDS, *flags}


def test_both_spellings_of_json_are_everywhere_where_one_is() -> None:
    having = [
        name
        for name, made in _parsers().items()
        if {"--json", "--jsonl"} & made._option_string_actions.keys()
    ]
    assert {"inspector diff", "inspector generate", "inspector models"} <= set(having)
    for name in having:
        actions = _parsers()[name]._option_string_actions
        assert actions["--json"] is actions["--jsonl"], name


def test_values_that_look_like_flags_are_still_values() -> None:
    made = _parsers()["inspector generate"]
    args = parsed(made, ["-p", "- a list", "--stop=--x", "--presence-penalty", "-1", "--stop", "-- y"])
    assert (args.prompt, args.stop, args.presence_penalty) == ("- a list", ["--x", "-- y"], -1)


def test_a_good_command_line_makes_no_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inspector.cli.flags.answer", None)
    assert parsed(_parsers()["inspector score"], ["-", "--jsonl"]).file == "-"
