"""The bundled model: that it is whole, that mlx_lm loads it and that it tells a story; and the scripts that made it."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np

from engine import pocket
from tests.make_pocket.prepare import POOLS, augment, swap

STORY = "Lily and Tom went to the park. Lily saw a dog. Tom said hello to Lily."


def read(name: str) -> str:
    return (pocket.directory() / name).read_text(encoding="utf-8")


def test_everything_that_ships_is_there() -> None:
    names = {path.name for path in pocket.directory().iterdir()}
    assert names >= {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "README.md"),
        "training-log.jsonl",
    }
    assert not any("tinystories" in name for name in names), "the corpus stays out"


def test_the_card_says_what_the_files_say() -> None:
    card, config = read("README.md"), json.loads(read("config.json"))
    log = [json.loads(line) for line in read("training-log.jsonl").splitlines()]
    assert f"{config['num_hidden_layers']} layers, hidden {config['hidden_size']}" in card
    assert f"| {config['max_position_embeddings']} tokens |" in card
    assert f"{log[-1]['step']:,} steps" in card
    assert f"{log[-1]['raw']:.3f}" in card
    assert f"{log[-1]['chat']:.3f}" in card
    assert "CDLA-Sharing-1.0" in card


def test_the_network_that_was_trained_is_the_one_in_the_config() -> None:
    source = (Path(__file__).parents[2] / "make_pocket" / "train.py").read_text(encoding="utf-8")
    config = json.loads(read("config.json"))
    shape = dict(re.findall(r"^    (\w+): (?:int|float) = (\S+)$", source, re.MULTILINE))
    assert int(shape["layers"]) == config["num_hidden_layers"]
    assert int(shape["hidden"]) == config["hidden_size"]
    assert int(shape["heads"]) == config["num_attention_heads"]
    assert int(shape["kv_heads"]) == config["num_key_value_heads"]
    assert int(shape["mlp"]) == config["intermediate_size"]
    assert int(shape["vocabulary"]) == config["vocab_size"]
    assert int(shape["context"]) == config["max_position_embeddings"]
    assert float(shape["rope_base"]) == config["rope_theta"]
    assert float(shape["norm_epsilon"]) == config["rms_norm_eps"]


def test_it_tells_a_story() -> None:
    from mlx_lm import generate, load

    model, tokenizer = load(str(pocket.directory()))
    story = generate(model, tokenizer, "Once upon a time", max_tokens=40)
    assert story.startswith(", there was a little girl named Lily.")
    request = [{"role": "user", "content": "Tell me a story about a dog."}]
    prompt = tokenizer.apply_chat_template(request, add_generation_prompt=True)
    assert tokenizer.decode(prompt).endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert generate(model, tokenizer, prompt, max_tokens=10).startswith("Once upon a time")


def test_names_are_swapped_one_for_one() -> None:
    swapped = swap(STORY, random.Random(3))
    girl, boy = re.match(r"(\w+) and (\w+) ", swapped).groups()  # type: ignore[union-attr]
    assert girl in POOLS[0]
    assert boy in POOLS[1]
    assert swapped == STORY.replace("Lily", girl).replace("Tom", boy)
    assert swap("Tomato soup.", random.Random(3)) == "Tomato soup."


def test_augmenting_keeps_every_story_and_leaves_out_copies_that_are_equal() -> None:
    stories = [STORY, "A cat sat."]
    augmented = augment(stories, copies=3)
    assert len(augmented) == 4
    assert augmented.count("A cat sat.") == 1
    assert STORY in augmented
    assert augment(stories, copies=3) == augmented


def test_packing_tells_requests_from_stories() -> None:
    from tokenizers import Tokenizer

    from tests.make_pocket.prepare import Requests, pack

    # a telling word is one that more than 30 stories have, and few of all: 40 of 1,000
    stories = [f"The dragon flew, number {n}." if n < 40 else f"A day, number {n}." for n in range(1000)]
    tokenizer = Tokenizer.from_file(str(pocket.directory() / "tokenizer.json"))
    raw, chat = (pack(tokenizer, stories, Requests(stories), share) for share in (0.0, 1.0))
    assert raw.dtype == chat.dtype == np.uint16
    told = tokenizer.decode(raw.tolist(), skip_special_tokens=False).split("<|endoftext|>")
    assert sorted(told) == sorted(["", *stories])
    turns = tokenizer.decode(chat.tolist(), skip_special_tokens=False).split("<|endoftext|>")
    asked = [turn for turn in turns if turn.startswith("<|im_start|>user\n")]
    assert len(asked) == 40
    assert all(
        "dragon" in turn.split("<|im_end|>")[0] or "flew" in turn.split("<|im_end|>")[0] for turn in asked
    )
    assert all(
        re.search(r"<\|im_start\|>assistant\nThe dragon flew, number \d+\.<\|im_end\|>\n$", turn)
        for turn in asked
    )
