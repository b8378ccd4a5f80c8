"""The special tokens in the facts about a model: rows, and where the chat template has them."""

from __future__ import annotations

import pytest

from engine.protocol import SpecialToken
from inspector.main.dialogs.facts import CHARACTERS, ROWS, FactsDialog, rows, template_parts, token_rows, uses
from tests.inspector.fakes import facts
from tests.inspector.rig import Rig

TEMPLATE = """{{ bos_token }}
{% for message in messages %}<|start|>{{ message.role }}<|end|>
{{ message.content }}<|eot|>{% endfor %}
{% if add_generation_prompt %}<|start|>assistant<|end|>{% endif %}"""
SPECIAL = (
    SpecialToken(1, "<|begin|>", ("BOS",)),
    SpecialToken(2, "<|start|>"),
    SpecialToken(3, "<|end|>"),
    SpecialToken(4, "<|eot|>", ("EOS", "PAD")),
    *(SpecialToken(10 + number, f"<|reserved_{number}|>") for number in range(248)),
    SpecialToken(400, "<|end_of_all|>"),
)
FACTS = facts(special=SPECIAL, special_count=len(SPECIAL), chat_template=TEMPLATE)


def test_each_has_its_roles_and_the_lines_of_the_template_and_numbered_ones_share_a_row() -> None:
    assert token_rows(FACTS) == [
        ("1", "<|begin|>", "BOS  template line 1"),
        ("2", "<|start|>", "template line 2, 4"),
        ("3", "<|end|>", "template line 2, 4"),
        ("4", "<|eot|>", "EOS  PAD  template line 3"),
        ("10-257", "<|reserved_0|> to <|reserved_247|>", "248 tokens"),
        ("400", "<|end_of_all|>", ""),
    ]


def test_the_template_is_told_whole_and_its_tokens_in_order() -> None:
    parts = template_parts(FACTS)
    assert "".join(text for text, _ in parts) == TEMPLATE
    assert uses(parts) == "bos_token <|start|> <|end|> <|eot|> <|start|> <|end|>"


def test_what_is_long_is_cut_and_says_so() -> None:
    special = tuple(SpecialToken(2 * number, f"<|{'ab'[number % 2]}{number}|>") for number in range(500))
    long = facts(special=special, special_count=6000, chat_template="<|a0|>" * CHARACTERS)
    told = token_rows(long)
    assert len(told) == ROWS + 1
    assert told[-1][1] == f"and {6000 - ROWS:,} more"
    parts = template_parts(long)
    assert sum(len(text) for text, _ in parts) < CHARACTERS + 100
    assert parts[-1][0] == f"\n… {5 * CHARACTERS:,} characters more"
    assert len(uses(parts)) < 2000


def test_hostile_tokens_and_templates_are_printable() -> None:
    special = (SpecialToken(1, "\x1b[31m", ("BOS",)), SpecialToken(2, "[/nope]"), SpecialToken(3, ""))
    hostile = facts(special=special, special_count=3, chat_template="\x1b[31m[/nope]\u202e(.*\r\n\tx")
    texts = [text for _, text, _ in token_rows(hostile)] + [text for text, _ in template_parts(hostile)]
    told = "".join(texts)
    assert not set("\x1b\u202e\r\t") & set(told)
    assert dict(rows(hostile))["begin (BOS)"] == "1 ␛[31m"


def test_facts_of_an_older_trace_name_the_ends_alone() -> None:
    told = dict(rows(facts(eos_ids=(0, 2))))
    assert told["end of sequence"] == "0, 2"
    assert "begin (BOS)" not in told


@pytest.mark.screen(size=(80, 24))
async def test_the_dialog_shows_them_and_scrolls_to_the_end_of_the_template(rig: Rig) -> None:
    rig.session.model = FACTS
    await rig.push([*rig.session.load(special=SPECIAL, special_count=252, chat_template=TEMPLATE)])
    await rig.press("i")
    await rig.until(lambda: "<|eot|>" in rig.screen_text())
    assert isinstance(rig.app.top, FactsDialog)
    await rig.press("end")
    await rig.until(lambda: "add_generation_prompt" in rig.screen_text())
