"""Checkpoints of a training: directories that mlx_lm loads as a model, with what it takes to go on."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Annotated, Any

import mlx.core as mx
import msgspec
from mlx.utils import tree_flatten, tree_unflatten
from msgspec import Meta, Struct
from msgspec.structs import replace
from tokenizers import Tokenizer

from engine.errors import LoadError, PathError, first_line
from engine.files import CONFIG_LIMIT, MIB, check_regular, message_and_hint, read_regular, shorter, typed
from engine.setting import check
from engine.settings import MOST_STEPS, TrainingSettings
from engine.training.learner import Learner
from engine.training.text import TrainingText, encode, read_text, write_tokenizer

TRAINING = "training.json"
"""Settings, steps made and the digest of the text."""
OPTIMIZER = "optimizer.safetensors"
"""State of the optimizer; mlx_lm doesn't read it, since it is not called model."""
WEIGHTS = "model.safetensors"
WEIGHTS_LIMIT = 512 * MIB
TRAINING_LIMIT = MIB
"""Bytes of `TRAINING` at most."""


def name_of(step: int) -> str:
    """The name of a checkpoint's directory: those of a training stand in the order of their steps."""
    return f"step-{step:06d}"


def save(learner: Learner, text: TrainingText, directory: Path) -> Path:
    """Write a checkpoint; its directory is there when it is complete.

    Args:
        learner: Between two steps.
        text: What it learns from.
        directory: Where the checkpoint's directory goes; made if it isn't there.

    Returns:
        The checkpoint's directory.

    Raises:
        PathError: It can't be written, or something else has its name.
    """
    target = directory / name_of(learner.step)
    aside = directory / f".{os.urandom(8).hex()}.part"
    try:
        aside.mkdir(parents=True)
        _write(learner, text, aside)
        if (target / TRAINING).is_file():
            shutil.rmtree(target)
        elif target.exists():
            hint = "Name another directory."
            raise PathError(f"{shorter(target)} already exists and is not a checkpoint.", hint)
        aside.rename(target)
    except OSError as error:
        raise PathError(*message_and_hint(target, error, "written")) from error
    except RuntimeError as error:  # MLX's, on a full disk
        message = f"{shorter(target)} can't be written ({first_line(error)})."
        raise PathError(message, "Make room there, or choose another place.") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return target.absolute()


def _write(learner: Learner, text: TrainingText, directory: Path) -> None:
    weights: Any = dict(tree_flatten(learner.model.parameters()))
    mx.save_safetensors(str(directory / WEIGHTS), weights, metadata={"format": "mlx"})
    state: Any = dict(tree_flatten(learner.optimizer.state))
    mx.save_safetensors(str(directory / OPTIMIZER), state)
    (directory / "config.json").write_text(json.dumps(learner.config, indent=1), encoding="utf-8")
    write_tokenizer(learner.tokenizer, directory)
    texts = tuple(str(typed(path).absolute()) for path in learner.settings.texts)
    kept = _TrainingFile(replace(learner.settings, texts=texts), learner.step, text.digest)
    (directory / TRAINING).write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1))


# ---- read again ---------------------------------------------------------------------------------


class TakenUp(Struct, frozen=True):
    """A training that goes on."""

    learner: Learner
    text: TrainingText


def take_up(directory: Path, steps: int | None = None) -> TakenUp:
    """Go on from a checkpoint.

    Args:
        directory: Of the checkpoint.
        steps: Of the whole training from now on; None for those that it was begun with.

    Raises:
        LoadError: It is no checkpoint, is damaged, or the text is another one by now.
        SettingsError: So many steps are out of range.
        PathError: The text can't be read.
    """
    kept = _kept(directory)
    settings = kept.settings if steps is None else check(replace(kept.settings, steps=steps))
    text = read_text(settings.texts)
    if text.digest != kept.text_sha256:
        raise LoadError(
            f"The text that {shorter(directory)} learned from has changed.",
            "Begin a new training, or bring the text back.",
        )
    tokenizer = _tokenizer(directory, settings)
    learner = Learner(settings, tokenizer, encode(text, tokenizer, settings))
    try:
        _fill(learner, directory)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise _damaged(directory, error) from error
    learner.step = kept.step
    return TakenUp(learner, text)


def _tokenizer(directory: Path, settings: TrainingSettings) -> Any:
    try:
        tokenizer = Tokenizer.from_str(read_regular(directory / "tokenizer.json", CONFIG_LIMIT).decode())
        ids = tokenizer.get_vocab().values()
        if not len(ids) <= settings.vocabulary or max(ids) >= len(ids):
            raise ValueError("its tokenizer has other tokens than its settings say")
    except Exception as error:  # the library raises plain exceptions
        raise _damaged(directory, error) from error
    return tokenizer


class _TrainingFile(Struct, frozen=True, forbid_unknown_fields=True):
    settings: TrainingSettings
    step: Annotated[int, Meta(ge=0, le=MOST_STEPS)]
    text_sha256: str


def _kept(directory: Path) -> _TrainingFile:
    try:
        kept = msgspec.json.decode(read_regular(directory / TRAINING, TRAINING_LIMIT), type=_TrainingFile)
    except FileNotFoundError:
        hint = "Name a directory that inspector train wrote, such as NAME/step-000300."
        raise LoadError(f"{shorter(directory)} is not a checkpoint of a training.", hint) from None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(directory, error) from error
    check(kept.settings)
    return kept


def _fill(learner: Learner, directory: Path) -> None:
    """Put the weights and the optimizer's state of a checkpoint into a learner.

    Raises:
        ValueError: They are others than the learner has, by name, shape or type.
    """
    for name, mine in ((WEIGHTS, learner.model.parameters()), (OPTIMIZER, learner.optimizer.state)):
        check_regular(directory / name, WEIGHTS_LIMIT)
        found: Any = mx.load(str(directory / name))
        named: Any = tree_flatten(mine)
        form = {key: (array.shape, array.dtype) for key, array in named}
        if {key: (array.shape, array.dtype) for key, array in found.items()} != form:
            raise ValueError(f"{name} has other arrays than its settings say")
        mx.eval(found)
        tree: Any = tree_unflatten(list(found.items()))
        if name == WEIGHTS:
            learner.model.update(tree)
        else:
            learner.optimizer.state = tree


def _damaged(directory: Path, error: Exception) -> LoadError:
    return LoadError(
        f"The checkpoint {shorter(directory)} is damaged ({first_line(error)}).", "Take an earlier one."
    )
