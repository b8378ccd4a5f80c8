"""A small llama that is trained step by step, in the thread that owns MLX: its text and tokenizer, the learner with
mlx_lm's class and MLX's AdamW, and checkpoints, directories that mlx_lm loads as a model.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
import time
from collections import deque
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, NoReturn

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import msgspec
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.models.llama import Model, ModelArgs
from msgspec import Meta, Struct
from msgspec.structs import replace
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from engine import protocol
from engine.errors import LoadError, PathError, StepError, first_line
from engine.files import (
    CONFIG_LIMIT,
    MIB,
    TEXT_LIMIT,
    check_regular,
    message_and_hint,
    read_regular,
    shorter,
    typed,
)
from engine.patches import blas
from engine.protocol import CheckpointSaved, NextToken, Record, TrainedStep, TrainingBegun, TrainingLook
from engine.session.context import Context
from engine.setting import check
from engine.settings import MOST_STEPS, TrainingSettings
from engine.task import Stopped, Task, never, poll

# ---- text and tokenizer ------------------------------------------------------------------------

STORIES = Path(__file__).parent / "stories.txt.gz"
"""Stories sampled by `tests.make_pocket.distill`."""
END_OF_TEXT = "<|endoftext|>"
"""Separator of the documents in a file; the token with this name precedes each document."""
END_ID = 0
SUFFIXES = (".txt", ".md")
"""Suffixes of the files to read in a folder."""
MOST_FILES = 1000
"""Maximum number of such files in a folder."""
MOST_ENTRIES = 20_000
"""Maximum number of entries in a folder and its subfolders."""
TOKENIZER_TEXT = 2 * MIB
"""Number of characters that the tokenizer is trained on: the pairs that are frequent there are also frequent in the
rest."""
PIECE = 3000
"""Maximum number of characters that are encoded at once. A text without a space is one word to the tokenizer: training
it on a million random letters takes 1.4 s in such pieces, 3.7 s in pieces of 10,000."""
HELD_OUT_SHARE = 0.05
LEAST_ROWS = 2
"""Minimum number of held-out rows of tokens."""
CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": None,
    "eos_token": END_OF_TEXT,
    "clean_up_tokenization_spaces": False,
}
"""Contents of tokenizer_config.json; they can be read without transformers, which takes seconds to import."""


class TrainingText(Struct, frozen=True):
    """The text that a model is trained on."""

    name: str
    """Short description for the user."""
    documents: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of the documents, with which a checkpoint recognizes its text."""
        return sha256(END_OF_TEXT.join(self.documents).encode()).hexdigest()


def read_text(paths: Sequence[str]) -> TrainingText:
    """Read the training text.

    Args:
        paths: Files, or folders with `.txt` and `.md` files, also in subfolders; empty for the bundled stories.

    Raises:
        PathError: A path is missing, unreadable or not UTF-8, or there is too much or nothing to read.
    """
    if not paths:
        documents = _documents(gzip.decompress(STORIES.read_bytes()).decode())
        return TrainingText(f"{len(documents)} stories told by the pocket model", documents)
    files = [file for path in paths for file in _files(typed(path))]
    documents, size = (), 0
    for file in files:
        try:
            text = read_regular(file, max(0, TEXT_LIMIT - size)).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            message = f"{shorter(file)} is not UTF-8 (at byte {error.start:,})."
            raise PathError(message, "Convert it first, with iconv for example.") from None
        except OSError as error:
            raise PathError(*message_and_hint(file, error)) from error
        size += len(text.encode())
        documents += _documents(text)
    if not documents:
        raise PathError(f"There is no text in {shorter(paths[0])}.", "Give a file with some text in it.")
    return TrainingText(shorter(files[0].name) if len(files) == 1 else f"{len(files)} files", documents)


def _documents(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(END_OF_TEXT) if part.strip())


def _files(path: Path) -> list[Path]:
    """The files of a path: the file itself, or those of a folder, sorted by name."""

    def refuse(error: OSError) -> NoReturn:
        raise PathError(*message_and_hint(error.filename, error)) from error

    if not path.is_dir():
        return [path]
    found: list[Path] = []
    seen = 0
    for folder, folders, names in os.walk(path, onerror=refuse):
        seen += len(folders) + len(names)
        if seen > MOST_ENTRIES:
            message = f"{shorter(path)} has more than {MOST_ENTRIES:,} files in it."
            raise PathError(message, "Give a smaller folder, or a file.")
        folders[:] = [name for name in folders if not name.startswith(".")]
        files = [Path(folder, name) for name in names if not name.startswith(".")]
        found += [file for file in files if file.suffix.lower() in SUFFIXES and not file.is_symlink()]
    if not found:
        hint = f"Give a folder with {' or '.join(SUFFIXES)} files, or a file."
        raise PathError(f"There is no text in {shorter(path)}.", hint)
    if len(found) > MOST_FILES:
        message = f"{shorter(path)} has {len(found):,} texts, more than {MOST_FILES:,}."
        raise PathError(message, "Give a smaller folder, or put them into one file.")
    return sorted(found)


def train_tokenizer(text: TrainingText, vocabulary: int) -> tuple[Any, float]:
    """Train a byte-level BPE tokenizer, which can encode any text.

    Args:
        text: The training text; only its first `TOKENIZER_TEXT` characters are used.
        vocabulary: Maximum number of tokens.

    Returns:
        The tokenizer, and the milliseconds of its training.
    """
    started = time.perf_counter()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_beginning(text, TOKENIZER_TEXT), trainer)
    return tokenizer, (time.perf_counter() - started) * 1000


def _beginning(text: TrainingText, characters: int) -> Iterator[str]:
    for document in text.documents:
        for piece in _pieces(document):
            if characters <= 0:
                return
            yield piece[:characters]
            characters -= len(piece)


def _pieces(document: str) -> Iterator[str]:
    return (document[start : start + PIECE] for start in range(0, len(document), PIECE))


def encode(
    text: TrainingText, tokenizer: Any, settings: TrainingSettings, stopped: Stopped = never
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Encode a text, each document after an end-of-text token.

    Returns:
        Token ids to train on, and held-out token ids from the end of the text; int32, shape (rows, tokens).

    Raises:
        Cancelled: `stopped` returned True.
        PathError: The text is too short.
    """
    ids: list[int] = []
    for document in text.documents:
        ids.append(END_ID)
        for piece in _pieces(document):
            poll(stopped)
            ids += tokenizer.encode(piece, add_special_tokens=False).ids
    row = settings.row_tokens + 1
    held_out = max(LEAST_ROWS * row, round(len(ids) * HELD_OUT_SHARE))
    if len(ids) < held_out + 2 * row:
        message = f"The text has {len(ids):,} tokens, too few for rows of {settings.row_tokens}."
        raise PathError(message, "Give a longer text, or shorter rows (--batch 8x16).")
    encoded = np.array(ids, np.int32)
    return encoded[:-held_out], encoded[-held_out:]


# ---- the learner --------------------------------------------------------------------------------

BETAS = (0.9, 0.95)
WEIGHT_DECAY = 0.01
LARGEST_NORM = 1.0
"""Maximum norm of the gradient of all weights together; larger gradients are clipped to it."""
WARM_UP_STEPS = 20
LEAST_RATE = 0.05
"""Fraction of the highest rate at the end of the linear decay."""
SLOWED = 150
"""Steps until the learning rate, without the linear decay, has fallen to the highest one divided by the square root of
2. Held-out loss in nats after the same processor time, 23 s and 80 s, of 4 layers with a cosine from 3e-3 (steps 340
and 1,200): 2.90, 2.96, 3.01 by seed, and 2.34. With 2 layers and this schedule from 8e-3 (steps 548 and 1,880): 2.70,
2.71, 2.71, and 2.33."""
HEADS = 4
"""Attention heads of each layer; the width is divided among them."""
HELD_OUT_ROWS = 32
"""Maximum number of held-out rows in one evaluation."""
HELD_OUT_BATCH = 8
CANDIDATES = 8
SAMPLE_TOKENS = 48
SAMPLE_TEMPERATURE = 0.8
TIMED_STEPS = 50
"""Number of recent steps from which the remaining time is estimated."""


def config_of(settings: TrainingSettings, vocabulary: int) -> dict[str, Any]:
    """The model's config.json, as mlx_lm reads it."""
    return {
        "model_type": "llama",
        "hidden_size": settings.width,
        "num_hidden_layers": settings.layers,
        "intermediate_size": settings.width * 8 // 3 // 8 * 8,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
        "head_dim": settings.width // HEADS,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocabulary,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "max_position_embeddings": 512,
        "eos_token_id": END_ID,
    }


def _part_of(weight: str) -> str:
    """The part of the model that a weight belongs to: `embedding`, `layer 0`, `norm`."""
    path = weight.split(".")  # model.layers.0.mlp.up_proj.weight
    return f"layer {path[2]}" if path[1] == "layers" else {"embed_tokens": "embedding"}.get(path[1], path[1])


def _loss(model: Any, batch: Any) -> Any:
    return nn.losses.cross_entropy(model(batch[:, :-1]), batch[:, 1:], reduction="mean")


class Learner:
    """Trains one model.

    Args:
        settings: Sizes and seed of the model, and the length of its training.
        text: The text that it is trained on.
        tokenizer: The tokenizer trained on that text.
        stopped: Polled while the text is encoded.

    Raises:
        Cancelled: `stopped` returned True.
        PathError: The text is too short.
    """

    def __init__(
        self, settings: TrainingSettings, text: TrainingText, tokenizer: Any, stopped: Stopped = never
    ) -> None:
        self.settings, self.text, self.tokenizer = settings, text, tokenizer
        self.train, self.held_out = encode(text, tokenizer, settings, stopped)
        self.config = config_of(settings, tokenizer.get_vocab_size())
        mx.random.seed(settings.seed)
        self.model = Model(ModelArgs.from_dict(self.config))
        self.optimizer = optim.AdamW(settings.rate, betas=list(BETAS), weight_decay=WEIGHT_DECAY)
        self.optimizer.init(self.model.trainable_parameters())
        mx.eval(self.model.parameters(), self.optimizer.state, mx.random.state)
        self.step = 0
        """Number of steps completed."""
        named: Any = tree_flatten(self.model.parameters())
        self.parts = tuple(dict.fromkeys(_part_of(name) for name, _ in named))
        self.parameters = sum(array.size for _, array in named)
        self._gradient = nn.value_and_grad(self.model, _loss)
        self._prompt = tokenizer.encode(settings.prompt).ids
        self._ms: deque[float] = deque(maxlen=TIMED_STEPS)
        self._look_ms = 0.0

    @property
    def done(self) -> bool:
        return self.step >= self.settings.steps

    def learn(self) -> TrainedStep:
        """Take one training step, and evaluate the model if the settings ask for it after this step."""
        settings, started = self.settings, time.perf_counter()
        self.optimizer.learning_rate = rate = self._rate()
        batch = mx.array(self._batch())
        loss, gradients = self._gradient(self.model, batch)
        norms = self._norms(gradients)
        clipped, _ = optim.clip_grad_norm(gradients, LARGEST_NORM)
        self.optimizer.update(self.model, clipped)
        mx.eval(loss, norms, self.model.parameters(), self.optimizer.state)
        self.step += 1
        ms = (time.perf_counter() - started) * 1000
        self._ms.append(ms)
        look = self._look() if self.step % settings.every == 0 or self.step == 1 or self.done else None
        steps_left = max(0, settings.steps - self.step)
        return TrainedStep(
            step=self.step,
            loss=loss.item(),
            rate=rate,
            norms=tuple(norm.item() for norm in norms),
            tokens=self.step * settings.rows * settings.row_tokens,
            ms=ms,
            left_ms=steps_left * (fmean(self._ms) + self._look_ms / settings.every),
            look=look,
        )

    def _rate(self) -> float:
        """Learning rate of the next step: a warm-up, then the product of an inverse square root and a linear decay."""
        settings, step = self.settings, self.step
        decay = max(LEAST_RATE, 1 - step / settings.steps) / math.sqrt(1 + step / SLOWED)
        return settings.rate * min(1.0, (step + 1) / WARM_UP_STEPS) * decay

    def _batch(self) -> np.ndarray[Any, Any]:
        """Token ids of the next step's batch, int32, shape (rows, tokens + 1).

        They depend only on seed and step, so that a resumed training continues with the same batches.
        """
        settings, width = self.settings, self.settings.row_tokens + 1
        rng = np.random.default_rng((settings.seed, self.step))
        starts = rng.integers(0, len(self.train) - width + 1, settings.rows)
        return np.stack([self.train[start : start + width] for start in starts])

    def _norms(self, gradients: Any) -> list[Any]:
        """Norm of each part's gradient, in the order of `parts`."""
        squares: dict[str, Any] = {}
        named: Any = tree_flatten(gradients)
        for name, gradient in named:
            part = _part_of(name)
            squares[part] = squares.get(part, 0) + mx.sum(gradient * gradient)
        return [mx.sqrt(squares[part]) for part in self.parts]

    def _look(self) -> TrainingLook:
        """Held-out loss, candidates after the prompt and a sampled text; this doesn't affect the training."""
        started = time.perf_counter()
        width, row = self.settings.row_tokens + 1, self.held_out
        count = min(HELD_OUT_ROWS, len(row) // width)
        rows = mx.array(row[: count * width].reshape(count, width))
        batches = [rows[start : start + HELD_OUT_BATCH] for start in range(0, count, HELD_OUT_BATCH)]
        loss = float(sum(_loss(self.model, batch).item() * len(batch) for batch in batches) / count)
        probs = np.array(mx.softmax(self.model(mx.array([self._prompt]))[0, -1]))
        candidates = tuple(
            NextToken(id, str(self.tokenizer.decode([id], skip_special_tokens=False)), float(probs[id]))
            for id in np.argsort(-probs, kind="stable")[:CANDIDATES].tolist()
        )
        sample = self._sample()
        self._look_ms = (time.perf_counter() - started) * 1000
        return TrainingLook(loss, candidates, sample, self._look_ms)

    def _sample(self) -> str:
        """A continuation of the prompt, sampled with the seed."""
        rng, cache = np.random.default_rng(self.settings.seed), make_prompt_cache(self.model)
        ids, drawn = self._prompt, list[int]()
        while len(drawn) < SAMPLE_TOKENS:
            logits = np.array(self.model(mx.array([ids]), cache=cache)[0, -1]).astype(np.float64)
            weights = np.exp((logits - logits.max()) / SAMPLE_TEMPERATURE)
            if not np.isfinite(weights).all():
                break
            id = int(rng.choice(len(weights), p=weights / weights.sum()))
            if id == END_ID:
                break
            drawn.append(id)
            ids = [id]
        return str(self.tokenizer.decode(drawn))


# ---- checkpoints --------------------------------------------------------------------------------

TRAINING = "training.json"
OPTIMIZER = "optimizer.safetensors"
"""File with the optimizer's state; mlx_lm doesn't read it, because its name doesn't begin with `model`."""
WEIGHTS = "model.safetensors"
WEIGHTS_LIMIT = 512 * MIB
TRAINING_LIMIT = MIB
"""Maximum size of `TRAINING` in bytes."""


class _TrainingFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of `TRAINING`."""

    settings: TrainingSettings
    step: Annotated[int, Meta(ge=0, le=MOST_STEPS)]
    text_sha256: str


def save(learner: Learner, directory: Path) -> Path:
    """Write a checkpoint; its directory gets its name once it is complete.

    Args:
        learner: The learner, between two steps.
        directory: Parent of the checkpoint's directory; created if missing.

    Returns:
        The checkpoint's directory.

    Raises:
        PathError: The checkpoint can't be written, or its name belongs to something else.
    """
    target = directory / f"step-{learner.step:06d}"
    unfinished = directory / f".{os.urandom(8).hex()}.part"
    try:
        unfinished.mkdir(parents=True)
        _write(learner, unfinished)
        if (target / TRAINING).is_file():
            shutil.rmtree(target)
        elif target.exists():
            hint = "Name another directory."
            raise PathError(f"{shorter(target)} already exists and is not a checkpoint.", hint)
        unfinished.rename(target)
    except OSError as error:
        raise PathError(*message_and_hint(target, error, "written")) from error
    except RuntimeError as error:  # raised by MLX, for example on a full disk
        message = f"{shorter(target)} can't be written ({first_line(error)})."
        raise PathError(message, "Make room there, or choose another place.") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target.absolute()


def _write(learner: Learner, directory: Path) -> None:
    weights: Any = dict(tree_flatten(learner.model.parameters()))
    mx.save_safetensors(str(directory / WEIGHTS), weights, metadata={"format": "mlx"})
    state: Any = dict(tree_flatten(learner.optimizer.state))
    mx.save_safetensors(str(directory / OPTIMIZER), state)
    (directory / "config.json").write_text(json.dumps(learner.config, indent=1), encoding="utf-8")
    learner.tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    texts = tuple(str(typed(path).absolute()) for path in learner.settings.texts)
    file = _TrainingFile(replace(learner.settings, texts=texts), learner.step, learner.text.digest)
    (directory / TRAINING).write_bytes(msgspec.json.format(msgspec.json.encode(file), indent=1))


def resume(directory: Path, steps: int | None = None) -> Learner:
    """Continue a training from a checkpoint.

    Args:
        directory: The checkpoint's directory.
        steps: New total number of steps; None to keep the checkpoint's.

    Raises:
        LoadError: The directory is not a checkpoint, is damaged, or its text has changed.
        SettingsError: The number of steps is out of range.
        PathError: The text can't be read.
    """
    try:
        file = msgspec.json.decode(read_regular(directory / TRAINING, TRAINING_LIMIT), type=_TrainingFile)
    except FileNotFoundError:
        hint = "Name a directory that inspector train wrote, such as NAME/step-000300."
        raise LoadError(f"{shorter(directory)} is not a checkpoint of a training.", hint) from None
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(directory, error) from error
    check(file.settings)
    settings = file.settings if steps is None else check(replace(file.settings, steps=steps))
    text = read_text(settings.texts)
    if text.digest != file.text_sha256:
        raise LoadError(
            f"The text that {shorter(directory)} learned from has changed.",
            "Begin a new training, or bring the text back.",
        )
    try:
        tokenizer = Tokenizer.from_str(read_regular(directory / "tokenizer.json", CONFIG_LIMIT).decode())
        ids = tokenizer.get_vocab().values()
        if not len(ids) <= settings.vocabulary or max(ids) >= len(ids):
            raise ValueError("its tokenizer has other tokens than its settings say")
    except Exception as error:  # the library raises plain exceptions
        raise _damaged(directory, error) from error
    learner = Learner(settings, text, tokenizer)
    try:
        _read_arrays(learner, directory)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise _damaged(directory, error) from error
    learner.step = file.step
    return learner


def _read_arrays(learner: Learner, directory: Path) -> None:
    """Read the weights and the optimizer's state of a checkpoint into a learner.

    Raises:
        ValueError: Names, shapes or types of the arrays differ from the learner's.
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


# ---- the commands ------------------------------------------------------------------------------


def begin_training(context: Context, command: protocol.BeginTraining, task: Task) -> Iterator[Record]:
    settings = check(command.settings)
    text = read_text(settings.texts)
    served = _prepare(context)
    tokenizer, ms = train_tokenizer(text, settings.vocabulary)
    learner = context.of_session[Learner] = Learner(settings, text, tokenizer, task.cancel.is_set)
    yield _begun(learner, served, ms)


def resume_training(context: Context, command: protocol.ResumeTraining, task: Task) -> Iterator[Record]:
    served = _prepare(context)
    learner = context.of_session[Learner] = resume(typed(command.checkpoint), command.steps)
    yield _begun(learner, served)


def _begun(learner: Learner, served: str, tokenizer_ms: float | None = None) -> TrainingBegun:
    return TrainingBegun(
        settings=learner.settings,
        text=learner.text.name,
        step=learner.step,
        parameters=learner.parameters,
        vocabulary=learner.config["vocab_size"],
        tokens=len(learner.train),
        held_out_tokens=len(learner.held_out),
        parts=learner.parts,
        tokenizer_ms=tokenizer_ms,
        blas=served,
    )


def _prepare(context: Context) -> str:
    """Prepare MLX as for a loaded model; returns the name of the library that multiplies its matrices."""
    if context.loaded is not None:
        return context.loaded.facts.blas
    if mx.default_device() == mx.Device(mx.cpu):
        mx.disable_compile()  # see `engine.model.load.prepare`
    return blas.install().name


def _learner(context: Context) -> Learner:
    learner: Learner | None = context.of_session.get(Learner)
    if learner is None:
        raise StepError("No training was begun.", "Begin one.")
    return learner


def train(context: Context, command: protocol.Train, task: Task) -> Iterator[Record]:
    """Take steps of the training."""
    learner, directory = _learner(context), command.directory and typed(command.directory)
    unsaved = False
    for _ in range(command.steps):
        if learner.done or task.cancel.is_set():
            break
        yield learner.learn()
        unsaved = True
        if directory and command.save_every and learner.step % command.save_every == 0:
            yield CheckpointSaved(learner.step, str(save(learner, directory)))
            unsaved = False
    if directory and unsaved:
        yield CheckpointSaved(learner.step, str(save(learner, directory)))
    poll(task.cancel.is_set)


def save_checkpoint(context: Context, command: protocol.SaveCheckpoint, task: Task) -> Iterator[Record]:
    learner = _learner(context)
    yield CheckpointSaved(learner.step, str(save(learner, typed(command.directory))))
