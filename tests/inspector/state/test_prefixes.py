"""Where two prompts part, and why, in seven families' templates: breakages made on purpose, each found at its token."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer

from engine import pocket
from engine.inspection.handlers import pieces
from engine.model.chat_template import filling
from engine.model.load import load_tokenizer
from engine.model.tokens import Tokens
from engine.protocol import ChatOptions, Message
from engine.settings import LoadSettings
from inspector.state.prefixes import Parting, SentPrompt, parting_of

TEMPLATES = Path(__file__).parents[2] / "templates"
MARK = re.compile(
    r"<\|[a-z_]+\|>|</?(?:think|tool_call|tool_response|tools|start_of_turn|end_of_turn)>|\[/?[A-Z_]{4,}\]|<｜[^｜]+｜>"
)
"""What a family's tokenizer has a token of its own for."""
SYSTEM = "You are a careful helper who knows the town and its weather. " * 12
ASKED, MORE = Message("user", "Weather in Bree?"), Message("user", "And tomorrow?")
SAID = "It rains in Bree."
THOUGHT = "They ask for the weather. I should call the tool, then say what it says, in few words. " * 3
CALL = {"name": "zeta", "arguments": {"city": "Bree", "when": "now"}}
WRITTEN = json.dumps(CALL["arguments"], separators=(",", ":"))
"""The arguments as a model writes them: without blanks, which the template puts between them."""


def tool(name: str) -> dict[str, Any]:
    city = {"city": {"type": "string", "description": "town"}}
    parameters = {"type": "object", "properties": city, "required": ["city"]}
    described = {"name": name, "description": f"{name} of a town", "parameters": parameters}
    return {"type": "function", "function": described}


TOOLS = ChatOptions(tools=json.dumps([tool("zeta"), tool("omega")]))
SWAPPED = ChatOptions(tools=json.dumps([tool("omega"), tool("zeta")]))
NONE = ChatOptions()
ENDS = {
    "qwen3": "<|im_end|>",
    "gpt_oss": "<|return|>",
    "deepseek_v31": "<｜end▁of▁sentence｜>",
    "llama31": "<|eot_id|>",
    "mistral_nemo": "</s>",
    "mistral_small32": "</s>",
    "gemma3": "<end_of_turn>",
}
"""What a model ends its answer with, by family."""
FINAL = {"gpt_oss": "<|channel|>final<|message|>"}
THINKS = {
    "qwen3": f"<think>\n{THOUGHT}\n</think>\n\n",
    "gpt_oss": f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant{FINAL['gpt_oss']}",
    "deepseek_v31": f"{THOUGHT}</think>",  # the prompt ends with the first mark
}
CALLS = {
    "qwen3": '<tool_call>\n{"name":"zeta","arguments":' + WRITTEN + "}\n</tool_call><|im_end|>",
    "gpt_oss": "<|channel|>commentary to=functions.zeta <|constrain|>json<|message|>" + WRITTEN + "<|call|>",
    "llama31": '{"name":"zeta","parameters":' + WRITTEN + "}<|eot_id|>",
    "mistral_nemo": '[TOOL_CALLS][{"name":"zeta","arguments":' + WRITTEN + ',"id":"abcdefghi"}]</s>',
    "mistral_small32": "[TOOL_CALLS]zeta[ARGS]" + WRITTEN + "</s>",
}


class Family:
    """A template on the bundled tokenizer, which has tokens for its marks.

    Args:
        name: Of the template.
        folder: For the model's files.
    """

    def __init__(self, name: str, folder: Path) -> None:
        source = (TEMPLATES / f"{name}.jinja").read_text()
        marks = sorted({*MARK.findall(source), ENDS[name], "<|constrain|>"})
        cut = Tokenizer.from_file(str(pocket.directory() / "tokenizer.json"))
        cut.add_special_tokens(marks)
        cut.save(str(folder / "tokenizer.json"))
        config = json.loads((pocket.directory() / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"vocab_size": cut.get_vocab_size() + 8}))
        settings = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<|endoftext|>",
            "eos_token": ENDS[name],
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        (folder / "chat_template.jinja").write_text(source)
        self.name, self.folder, self.end = name, folder, ENDS[name]
        self.tokens: Tokens = load_tokenizer(LoadSettings(model=str(folder)))
        self._filled = AutoTokenizer.from_pretrained(folder)

    def prompt(
        self, messages: Sequence[Message], options: ChatOptions = NONE, answer: str | Sequence[int] = ""
    ) -> SentPrompt:
        """A request, and the answer that a cache holds behind it."""
        given = filling(messages, options)
        text = self._filled.apply_chat_template(
            given.conversation, tools=given.tools, tokenize=False, add_generation_prompt=True, **given.config
        )
        behind = list(self.cut(answer)) if isinstance(answer, str) else list(answer)
        ids = self.cut(text)
        return SentPrompt(messages, options, pieces(self.tokens, [*ids, *behind]), len(behind))

    def cut(self, text: str) -> list[int]:
        return self.tokens.encode(text, bare=True) if text else []

    def said(self, text: str = SAID) -> str:
        """An answer as it was generated."""
        return FINAL.get(self.name, "") + text + self.end


@pytest.fixture(scope="module")
def families(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Family]:
    made: dict[str, Family] = {}

    def family(name: str) -> Family:
        if name not in made:
            made[name] = Family(name, tmp_path_factory.mktemp(name))
        return made[name]

    return family


def before(system: str = SYSTEM) -> list[Message]:
    return [Message("system", system), ASKED]


def after(answer: str = SAID, system: str = SYSTEM, **more: Any) -> list[Message]:
    return [*before(system), Message("assistant", answer, json.dumps(more) if more else ""), MORE]


def found(one: SentPrompt, other: SentPrompt) -> Parting:
    """Where they part, held against a comparison id by id."""
    parting = parting_of(one, other)
    mine, theirs = ([each.id for each in made.pieces] for made in (one, other))
    assert mine[: parting.shared] == theirs[: parting.shared]
    ends = parting.shared in (len(mine), len(theirs))
    assert ends or mine[parting.shared] != theirs[parting.shared]
    assert (parting.lost, parting.anew) == (len(mine) - parting.shared, len(theirs) - parting.shared)
    return parting


@pytest.mark.wide(3)
@pytest.mark.parametrize("name", ENDS)
def test_a_plain_turn(families: Any, name: str) -> None:
    family = families(name)
    one = family.prompt(before(), answer=family.said())
    parting = found(one, family.prompt(after()))
    if name == "mistral_nemo":  # the system prompt stands before the last message
        assert (parting.cause, parting.shared) == ("moved", 2)
        assert parting.one.startswith("You are a careful")
        assert parting.other.startswith(ASKED.content)
    elif name == "gpt_oss":
        assert (parting.cause, parting.lost) == ("end of the answer", 1)
        assert (parting.one, parting.other[:7]) == ("<|return|>", "<|end|>")
    else:
        assert (parting.cause, parting.lost) == (None, 0)


@pytest.mark.parametrize("name", THINKS)
def test_thinking_that_is_dropped(families: Any, name: str) -> None:
    family = families(name)
    options = ChatOptions(config='{"thinking": true}')
    one = family.prompt(before(), options, THINKS[name] + SAID + family.end)
    parting = found(one, family.prompt(after(reasoning_content=THOUGHT), options))
    assert parting.cause == "thinking"
    assert parting.message is None
    assert parting.lost >= len(family.cut(THOUGHT))
    assert ("think" in parting.one[:10]) or parting.one.startswith("analysis")


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_written_again(families: Any, name: str) -> None:
    family = families(name)
    one = family.prompt(before(), TOOLS, CALLS[name])
    call = {"id": "abcdefghi", "type": "function", "function": CALL}
    back = Message("assistant", "", json.dumps({"tool_calls": [call]}))
    result = Message("tool", "rain", json.dumps({"tool_call_id": "abcdefghi", "name": "zeta"}))
    parting = found(one, family.prompt([*before(), back, result], TOOLS))
    assert parting.message is None
    if name == "mistral_nemo":  # the system prompt is written before a user's last message, or not at all
        assert parting.cause == "moved"
        assert parting.one.startswith("You are a careful")
        return
    assert parting.cause == "tool call"
    assert parting.shared >= len(one.pieces) - one.answer


@pytest.mark.parametrize("name", CALLS)
def test_tools_in_another_order(families: Any, name: str) -> None:
    family = families(name)
    one = family.prompt(before(), TOOLS, family.said())
    parting = found(one, family.prompt(after(), SWAPPED))
    if name.startswith("mistral"):
        assert (parting.cause, parting.other[:6]) == ("moved", "[INST]")
        parting = found(one, family.prompt(before(), SWAPPED))  # the same question again
    assert parting.cause == "order of tools"
    assert parting.one.lstrip(' "').startswith("zeta")
    assert parting.other.lstrip(' "').startswith("omega")


@pytest.mark.parametrize("name", ["mistral_nemo", "mistral_small32"])
def test_tools_that_move(families: Any, name: str) -> None:
    family = families(name)
    one = family.prompt(before(), TOOLS, family.said())
    parting = found(one, family.prompt(after(), TOOLS))
    assert parting.cause == "moved"
    assert parting.one.startswith("[AVAILABLE_TOOLS]")
    assert parting.other.startswith("[INST]")


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize(("now", "then"), [("12:00", "12:01"), ("2026-11-27", "2026-11-28")])
def test_a_date_or_a_time(families: Any, name: str, now: str, then: str) -> None:
    family = families(name)
    systems = [f"{SYSTEM[:100]} Now: {each}. {SYSTEM[100:]}" for each in (now, then)]
    answer = family.said()
    one = family.prompt(before(systems[0]), answer=answer)
    # the template of Mistral Nemo moves the system prompt of a longer conversation: the same question again
    two = before(systems[1]) if name == "mistral_nemo" else after(system=systems[1])
    parting = found(one, family.prompt(two))
    assert parting.cause == "date or time"
    assert parting.message == 0
    assert now.startswith(parting.before.rpartition("Now: ")[2])


@pytest.mark.parametrize("name", ["llama31", "gemma3"])
def test_white_space_that_is_trimmed(families: Any, name: str) -> None:
    family = families(name)
    one = family.prompt(before(), answer=family.said(SAID + " \n"))
    parting = found(one, family.prompt(after(SAID + " \n")))
    assert parting.cause == "white space"
    assert parting.before.endswith(SAID)
    assert parting.lost <= 3


@pytest.mark.parametrize("name", ENDS)
def test_a_word_in_other_tokens(families: Any, name: str) -> None:
    family = families(name)
    system = [] if name == "mistral_nemo" else before()[:1]
    parts = (FINAL.get(name, "") + "It", " r", "ains", " in Bree." + family.end)
    assert family.cut(" rains") != [*family.cut(" r"), *family.cut("ains")]
    answer = [token for part in parts for token in family.cut(part)]
    one = family.prompt([*system, ASKED], answer=answer)
    parting = found(one, family.prompt([*system, ASKED, Message("assistant", SAID), MORE]))
    assert parting.cause == "encoded anew"
    assert parting.before.endswith("It")
    assert parting.one.startswith(" rains in Bree.")


def test_another_text_is_no_move(families: Any) -> None:
    family = families("mistral_small32")
    one = family.prompt(before(), TOOLS)
    parting = found(one, family.prompt(before(SYSTEM.replace("careful", "very careful", 1)), TOOLS))
    assert (parting.cause, parting.message) == ("other text", 0)
