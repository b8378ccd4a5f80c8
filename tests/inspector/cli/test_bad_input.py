"""What is asked for wrongly, of every subcommand, comes down to one line that says so; the help of each is instant."""

from __future__ import annotations

import shlex

import pytest

from inspector.cli.main import SUBCOMMANDS, main
from tests.inspector.cli.scripted import Complaint
from tests.inspector.cli.test_main import light

STORY = "-p 'Once upon a time' --ignore-chat-template"
REFUSED = {
    "generate -p hi": {
        "--top-p 1.5": "--top-p: top-p must be a number above 0 and at most 1, not 1.5.",
        "--top-p nan": "--top-p: top-p must be",
        "--temp -1": "--temp: temperature must be 0, or a number from 0.001 to 100",
        "--top-k -1": "--top-k: top-k must be a whole number from 0",
        "--top-k 2.5": "--top-k: top-k must be a whole number",
        f"--seed {2**64}": "--seed: seed must be",
        "--candidates 0": "--candidates: candidates must be",
        "--max-tokens 0": "--max-tokens: max tokens must be",
        "--stop ''": "--stop: stop string must not be empty",
        "--kv-bits 7": "--kv-bits: KV bits must be one of 2, 3, 4, 5, 6, 8, not 7.",
        "--kv-bits x": "--kv-bits: must be a whole number, not 'x'.",
        "--max-kv-size 1": "--max-kv-size: ",
        "--prefill-step-size 0": "--prefill-step-size: ",
        "--temp": "--temp: expected one argument.",
        "--num-draft-tokens 2": "--num-draft-tokens has no effect without a draft",
        "--draft lookup --draft-model pocket": "were both given",
        "--draft lookup --num-draft-tokens 99": "from 1 to 16, not 99",
    },
    f"beam {STORY}": {
        "--width 11": "--width: width must be a whole number from 1 to 10, not 11.",
        "--width two": "--width: must be a whole number, not 'two'.",
        "--length-penalty nan": "--length-penalty: length penalty must be a number from -10 to 10, not nan.",
        "--max-tokens 0": "--max-tokens",
        "--temp 1": "inspector beam has no flag --temp. --temp is a flag of inspector, inspector generate,",
        "--kv-bits 7": "--kv-bits",
        "--model no/such/place/at-all": "at-all",
        "--prompt-file nowhere.txt": "--prompt and --prompt-file were both given.",
    },
    "beam": {"": "No prompt was given.", "-p ''": "The prompt is empty."},
    "": {
        "--model pocket beam": "Put beam first: inspector beam ...",
        "--no-save pocket": "Put the model first, and one alone: inspector pocket [flags].",
    },
    "batch": {
        "": "No prompt was given.",
        "-p ''": "One of the prompts is empty.",
        "-p a -p b -n 3": "--draws continues one prompt, and several were given.",
        "-p a --batch-size 0": "0 lanes at once are out of range. Give 1 to 256.",
        "-p a --prompt-file nowhere": "nowhere",
    },
    "show race": {
        "--from two": "--from: must be a whole number, not 'two'.",
        "--max-tokens 9": "inspector show race has no flag --max-tokens. --max-tokens is a flag of",
        "--to 8": "A race can't go from 16 to 8 tokens.",
        "--to 513": "exceeds the model's context window of 512. Race to 512 tokens or fewer.",
        "--no-kv-cache --kv-bits 8": "--no-kv-cache: there is no KV cache for --kv-bits to change.",
    },
    "show time": {
        "--repeats x": "--repeats: must be a whole number",
        "--repeats 0": "must be a whole number of at least 1, not 0",
    },
    f"show {STORY}": {
        "--at 900": "--at 900: there is no step 900. Add --steps, or name a prompt token, such as p2.",
        "--at p5": "--at p5: there is no prompt token 5. Give one from p1 to p4.",
        "--at p1": "--at: there is no token before the first one.",
        "--at 0": "--at: tokens are counted from 1",
        "--at x": "--at: must be a whole number, not 'x'.",
        "lens,colours": "VIEW,...: there is no view 'colours': choose from map, attention, lens, contributions, "
                        "gradients, scores, heads, positions, experts, switch-off, patching, steering, race, time, "
                        "cache.",
        "lens,race": "race comes first, and alone: inspector show race",
        "drafts": "drafts are a flag: inspector generate --draft lookup",
        "--positions 0": "--positions: must be 1 or more",
        "heads --texts 1,2": "1 to 100 texts of twice 2 to 512 tokens",
        "heads --texts 1,2,3,4": "--texts: give a length, a count and a seed.",
        "contributions --token ' a big dog'": "' a big dog' is 3 tokens, not one.",
        "contributions --token 7 --against 7": "or of two different ones.",
        "--alone --against 7": "not allowed with",
        "--off L99": "There is no L99: this model has 8 layers.",
        "--off 'L1 h9'": "there is no h9",
        "--off h3": "--off: 'h3' is not a unit: write L6 h1, L3 mlp or L4",
        "--head L6": "--head: 'L6' is not a head: write L6 h1",
        "scores --key 900": "--key 900: there is no step 900. Add --steps, or name a prompt token, such as p2.",
        "scores --key p5": "--key p5: there is no prompt token 5. Give one from p1 to p4.",
        "scores --at p2 --key p3": "A head looks at no later token.",
        "scores --head 'L9 h1'": "There is no L9: this model has 8 layers.",
        "--off L0": "layers and heads count from 1",
        "lens --token ' x'": "--token has no effect on lens. Leave it out, or name one of its views: contributions,",
        "attention --head 'L1 h1'": "--head has no effect on attention.",
    },
    "open": {"": "inspector open needs FILE. Such as: inspector open requests.har,"},
    "completion": {"": "Such as: inspector completion bash."},
    "diff": {
        "": "inspector diff needs A. Such as: inspector diff pocket --bits 4 --text FILE,",
        "pocket -p x": "No second model was named. Name one after the first",
        "pocket pocket": "No text was given.",
        "pocket pocket -p x --text y": "--text and --prompt were both given.",
        "pocket pocket -p ''": "The text is empty",
        "pocket pocket --text /nowhere/no": "There is no file '/nowhere/no'",
        "pocket --group-size 32 -p x": "A group size was given without the bits",
        "pocket pocket --model pocket -p x": "The first model was named twice",
    },
    "tokens": {
        "-p ''": "The text is empty",
        "-p a file": "A FILE and --prompt were both given",
        "/nowhere/at/all": "There is no file",
        "'Hello world.'": "There is no file 'Hello world.'. Check",
    },
    "lesson": {
        "": "inspector lesson needs VERB and FILE. Such as: inspector lesson new my-lesson.md,",
        "check none.md": "none.md can't be read",
        "check none.txt": "The name of a lesson ends in .md",
        "new a.md --find-seed": "--find-seed is a flag of `inspector lesson check`",
        "check a.md --dtype file --all-dtypes": "both given",
        "frob a.md": "VERB: must be one of new, check, record, run, not 'frob'.",
    },
}  # fmt: skip
"""By what a command begins with: what is added, and what is said then."""


@pytest.mark.parametrize(
    ("command", "said"),
    [(f"{begin} {flags}", said) for begin, cases in REFUSED.items() for flags, said in cases.items()],
)
def test_what_is_asked_for_wrongly_is_one_line(command: str, said: str, complaint: Complaint) -> None:
    assert said in complaint(*shlex.split(command))


HELP = {
    "show race": "--from N;--to N;--temp;--model;--jsonl",
    "diff": "--bits;--group-size;--adapter;--text;--window;--json;--kv-bits",
    "score": "--jsonl;--summary;--candidates;--chat-template;--model;--kv-bits",
    "beam": "--width;--length-penalty;--early-stopping;--max-tokens;--min-tokens;--jsonl;--model",
    "batch": "--prompt TEXT;--lines;--static;--compare;--draws N;--temp;--model;--jsonl",
}
"""Flags that a subcommand's help names."""


@pytest.mark.wide(2)
@pytest.mark.parametrize("name", HELP)
def test_help_is_instant_and_names_the_flags(name: str) -> None:
    text = light(*name.split(), "--help")
    assert [flag for flag in HELP[name].split(";") if flag not in text] == []
    assert ("--temp" in text) == (name in ("show race", "batch"))


@pytest.mark.parametrize("name", [*SUBCOMMANDS])
def test_the_usage_is_one_line_that_names_the_arguments(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    usage, blank, *_ = text.split("\n")
    assert usage.startswith(f"usage: inspector {name} ")
    assert (usage.endswith(" [flags]"), blank) == (True, "")
    assert ("A [B]" in usage) == (name == "diff")
    assert "--model MODEL" not in text or name != "diff", "the first model is A"
