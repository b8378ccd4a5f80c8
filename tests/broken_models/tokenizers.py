"""Broken tokenizers, and chat templates broken in each way."""

from __future__ import annotations

import os
from pathlib import Path

from tests.broken_models.breaking import Change, cut, edited, fields, file, gone, late, nested, without

NAME, SETTINGS = "tokenizer.json", "tokenizer_config.json"


def model(**values: object) -> Change:
    """Changes the model in tokenizer.json."""
    return edited(NAME, lambda content: content | {"model": content["model"] | values})


def template(text: object) -> Change:
    """A chat template."""
    return fields(SETTINGS, chat_template=text)


def piped(name: str) -> Change:
    def change(directory: Path) -> None:
        (directory / name).unlink(missing_ok=True)
        os.mkfifo(directory / name)

    return change


def linked(name: str, target: str) -> Change:
    def change(directory: Path) -> None:
        (directory / name).unlink(missing_ok=True)
        (directory / name).symlink_to(target)

    return change


def sparse(name: str) -> Change:
    def change(directory: Path) -> None:
        (directory / name).unlink(missing_ok=True)
        with (directory / name).open("wb") as opened:
            opened.truncate(2**34)

    return change


def none_at_all(directory: Path) -> None:
    (directory / NAME).unlink()
    (directory / SETTINGS).unlink()


TOKENIZERS: dict[str, Change] = {
    "none": none_at_all,
    "settings-alone": gone(NAME),
    "empty": file(NAME, b""),
    "cut": cut(NAME, 0.5),
    "no-json": file(NAME, "tokens\n"),
    "a-list": file(NAME, "[]"),
    "a-number": file(NAME, "7"),
    "null": file(NAME, "null"),
    "an-empty-object": file(NAME, "{}"),
    "nested": file(NAME, '{"model": ' + nested(100_000) + "}"),
    "invalid-utf8": file(NAME, b'{"model": "\xff"}'),
    "pointer": file(NAME, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 900\n"),
    "pipe": piped(NAME),
    "settings-a-pipe": piped(SETTINGS),
    "special-tokens-a-pipe": piped("special_tokens_map.json"),
    "template-a-pipe": piped("chat_template.jinja"),
    "generation-a-pipe": piped("generation_config.json"),
    "config-a-pipe": piped("config.json"),
    "config-to-dev-zero": linked("config.json", "/dev/zero"),
    "config-to-itself": linked("config.json", "config.json"),
    "config-to-nothing": linked("config.json", "nothing"),
    "to-dev-zero": linked(NAME, "/dev/zero"),
    "to-itself": linked(NAME, NAME),
    "to-nothing": linked(NAME, "nothing"),
    "huge": sparse(NAME),
    "config-huge": sparse("config.json"),
    "settings-huge": sparse(SETTINGS),
    "template-huge": sparse("chat_template.jinja"),
    "model-missing": without(NAME, "model"),
    "model-unknown": model(type="Spiral"),
    "model-null": fields(NAME, model=None),
    "vocab-missing": edited(NAME, lambda content: content | {"model": {"type": "BPE", "merges": []}}),
    "vocab-a-list": model(vocab=[1, 2]),
    "vocab-negative": model(vocab={"a": -1}, merges=[]),
    "vocab-floats": model(vocab={"a": 0.5}, merges=[]),
    "vocab-1e30": model(vocab={"a": 10**30}, merges=[]),
    "vocab-of-500000": late(lambda: model(vocab={f"k{token}": token for token in range(500_000)}, merges=[])),
    "added-tokens-200000": late(
        lambda: fields(NAME, added_tokens=[{"id": 5000 + place} for place in range(200_000)])
    ),
    "added-tokens-file-200000": late(
        lambda: file("added_tokens.json", {f"k{place}": place for place in range(200_000)})
    ),
    "settings-of-many-values": late(lambda: file(SETTINGS, {f"k{place}": 1 for place in range(1_100_000)})),
    "template-of-2-mb": late(lambda: file("chat_template.jinja", "{{ 'x' }}" * 250_000)),
    "merges-unknown": model(merges=["zzz yyy"]),
    "merges-numbers": model(merges=[1, 2]),
    "ids-beyond-the-embedding": edited(
        NAME,
        lambda content: (
            content
            | {
                "model": content["model"]
                | {"vocab": {k: v + 9999 for k, v in content["model"]["vocab"].items()}}
            }
        ),
    ),
    "added-tokens-a-text": fields(NAME, added_tokens="x"),
    "added-tokens-numbers": fields(NAME, added_tokens=[1, 2]),
    "added-token-without-id": fields(NAME, added_tokens=[{"content": "x"}]),
    "decoder-unknown": fields(NAME, decoder={"type": "Spiral"}),
    "decoder-number": fields(NAME, decoder=7),
    "normalizer-number": fields(NAME, normalizer=7),
    "pre-tokenizer-number": fields(NAME, pre_tokenizer=7),
    "pattern-wrong": fields(
        NAME, pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated"}
    ),
    "settings-empty": file(SETTINGS, b""),
    "settings-cut": cut(SETTINGS, 0.5),
    "settings-a-list": file(SETTINGS, "[1]"),
    "settings-a-number": file(SETTINGS, "7"),
    "settings-null": file(SETTINGS, "null"),
    "settings-a-text": file(SETTINGS, '"x"'),
    "settings-nested": file(SETTINGS, '{"a": ' + nested(100_000) + "}"),
    "settings-invalid-utf8": file(SETTINGS, b'{"a": "\xff"}'),
    "class-number": fields(SETTINGS, tokenizer_class=7),
    "class-list": fields(SETTINGS, tokenizer_class=["a"]),
    "class-of-another": fields(SETTINGS, tokenizer_class="T5Tokenizer"),
    "auto-map": fields(SETTINGS, auto_map={"AutoTokenizer": ["tok.Tok", None]}, tokenizer_class="Tok"),
    "eos-number": fields(SETTINGS, eos_token=7),
    "eos-list": fields(SETTINGS, eos_token=["a"]),
    "eos-object": fields(SETTINGS, eos_token={"a": 1}),
    "added-decoder-a-list": fields(SETTINGS, added_tokens_decoder=[1]),
    "added-decoder-of-texts": fields(SETTINGS, added_tokens_decoder={"x": {"content": "y"}}),
    "added-decoder-of-numbers": fields(SETTINGS, added_tokens_decoder={"5": 5}),
    "extra-special-number": fields(SETTINGS, extra_special_tokens=7),
    "length-text": fields(SETTINGS, model_max_length="x"),
    "tool-parser-unknown": fields(SETTINGS, tool_parser_type="spiral"),
    "tool-parser-path": fields(SETTINGS, tool_parser_type="../../x"),
    "template-type-unknown": fields(SETTINGS, chat_template_type="spiral"),
    "template-type-number": fields(SETTINGS, chat_template_type=7),
    "special-tokens-a-list": file("special_tokens_map.json", "[1]"),
    "special-tokens-numbers": file("special_tokens_map.json", {"eos_token": 5}),
    "special-tokens-damaged": file("special_tokens_map.json", "{"),
    "added-tokens-file-a-list": file("added_tokens.json", "[1]"),
    "template-loops": template(
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "template-gigabytes": template("{{ 'x' * 10 ** 10 }}"),
    "template-doubles": template(
        "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}"
    ),
    "template-power": template("{{ 10 ** (10 ** 10) }}"),
    "template-megabytes": template("{{ 'x' * 50000000 }}"),
    "template-recursive": template("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"),
    "template-syntax": template("{% for %}"),
    "template-unclosed": template("{{ messages"),
    "template-raises": template("{{ raise_exception('never') }}"),
    "template-undefined": template("{{ messages.none.none }}"),
    "template-unsafe": template("{{ ''.__class__.__mro__[1].__subclasses__() }}"),
    "template-empty-text": template("{{ '' }}"),
    "template-unicode": template("{{ '\\ud800' }}"),
    "template-number": template(7),
    "template-list-of-numbers": template([1, 2]),
    "template-without-default": template([{"name": "tool_use", "template": "x"}]),
    "template-includes": template("{% include '/etc/passwd' %}"),
    "template-invalid-utf8": file("chat_template.jinja", b"\xff\xfe{{ messages }}"),
    "template-json-damaged": file("chat_template.json", "{"),
}
