"""An engine's worker with two models, and a tokenizer that cuts otherwise than the bundled one."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.protocol import Command, LockstepRead, LockstepSpan
from engine.settings import LoadSettings
from tests.engine.unthreaded import Unthreaded

TEXT = (
    "Once upon a time, there was a little girl named Zoë. She loved to play with her toys — a red ball 🔴 and a café!\n"
    "One day, Zoë went to the park with her mom. They saw a big dog. The dog was very happy, and so was Zoë."
)


class Two(Unthreaded):
    """A worker with a first model."""

    def __init__(self, first: LoadSettings | None = None) -> None:
        self.first = first or LoadSettings()
        super().__init__(self.first)

    def spans(self, command: Command) -> list[LockstepSpan]:
        """The spans that a command has read."""
        return [span for each in self.do(command) if isinstance(each, LockstepRead) for span in each.spans]


def coarse_tokenizer(model: Path, text: str = TEXT) -> Path:
    """Give a model a byte-level tokenizer of its own, which cuts into shorter pieces; returns its directory."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>"]
    made.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, special_tokens=special)
    )
    made.save(str(model / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": special[0]}
    (model / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return model
