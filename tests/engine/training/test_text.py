"""What is learned from: the stories, files, folders, and whatever else a person may name; and its tokenizer."""

from __future__ import annotations

import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.errors import PathError
from engine.files import MIB
from engine.protocol import BeginTraining, Failure
from engine.settings import TrainingSettings
from engine.training.learner import END_OF_TEXT, MOST_FILES, TrainingText, encode, read_text, train_tokenizer
from tests.engine.training.rig import text, tiny
from tests.engine.unthreaded import Unthreaded
from tests.make_pocket.distill import whole_sentences


def made(*documents: str) -> TrainingText:
    return TrainingText("made", documents)


class Characters:
    """A tokenizer of which every character is a token."""

    def encode(self, text: str, **_: object) -> Any:
        return SimpleNamespace(ids=[1] * len(text))


def test_the_stories_come_with_the_program() -> None:
    stories = read_text(())
    assert len(stories.documents) > 800
    assert all(len(each) > 150 and "�" not in each and END_OF_TEXT not in each for each in stories.documents)
    assert sum(map(len, stories.documents)) > 350_000
    assert "stories told by the pocket model" in stories.name


def test_texts_of_files_and_folders_are_documents(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("second")
    (tmp_path / "a.txt").write_text(f"first{END_OF_TEXT}\nand more\n")
    (tmp_path / "c.py").write_text("no text")
    (tmp_path / ".hidden.txt").write_text("hidden")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "d.TXT").write_bytes(b"\xef\xbb\xbfthird")
    (tmp_path / "below" / "loop").symlink_to(tmp_path)
    found = read_text((str(tmp_path),))
    assert found.documents == ("first", "and more", "second", "third")
    assert found.name == "3 files"
    assert read_text((str(tmp_path / "c.py"),)).documents == ("no text",)


def test_every_text_is_encoded_and_decoded_as_it_is() -> None:
    tokenizer, _ = train_tokenizer(made(text()), 300)
    for each in ("the dog", "Grüße 世界 🐕", "\x00\x1b[31m\u202e", "a\n\n b", ""):
        ids = tokenizer.encode(each, add_special_tokens=False).ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == each
    assert tokenizer.token_to_id(END_OF_TEXT) == 0
    assert tokenizer.get_vocab_size() <= 300


def test_ids_are_the_documents_behind_one_another(tmp_path: Path) -> None:
    documents = (text(800, 1), text(800, 2))
    tokenizer, _ = train_tokenizer(made(*documents), 300)
    whole = np.concatenate(encode(made(*documents), tokenizer, tiny(tmp_path))).tolist()
    parts = tokenizer.decode(whole, skip_special_tokens=False).split(END_OF_TEXT)
    assert parts == ["", *documents]


@pytest.mark.parametrize(("characters", "held_out"), [(67, 34), (200, 34), (678, 34), (719, 36), (1999, 100)])
def test_a_twentieth_of_a_text_is_held_out_and_two_rows_at_least(
    tmp_path: Path, characters: int, held_out: int
) -> None:
    """A row of 16 tokens needs one more, which is to be predicted; every character is a token here."""
    train, ends = encode(made("x" * characters), Characters(), tiny(tmp_path))
    assert (len(ends), len(train)) == (held_out, characters + 1 - held_out)


def test_four_rows_are_the_shortest_text(tmp_path: Path) -> None:
    for characters in (66, 1):
        with pytest.raises(PathError, match=f"The text has {characters + 1} tokens, too few for rows of 16"):
            encode(made("x" * characters), Characters(), tiny(tmp_path))


def test_a_text_without_a_blank_is_learned_from_in_bounded_time(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("".join(random.Random(0).choices("abcdefgh", k=200_000)))
    found = read_text((str(tmp_path / "long.txt"),))
    tokenizer, _ = train_tokenizer(found, 400)
    assert len(encode(found, tokenizer, tiny(tmp_path))[0]) > 1000


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "There is no text in"),
        (b" \n ", "There is no text in"),
        (END_OF_TEXT.encode() * 5, "There is no text in"),
        (b"\xff\xfe\x00a", "is not UTF-8"),
        (b"too short", "too few for rows"),
        (b"a" * (16 * MIB + 1), "more than 16 MiB"),
    ],
    ids=["empty", "blank", "ends", "binary", "short", "large"],
)  # fmt: skip
def test_what_is_no_text_is_refused(content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    failure, _ = Unthreaded().do(
        BeginTraining(TrainingSettings(texts=(str(tmp_path / "x"),), layers=1, width=16))
    )
    assert isinstance(failure, Failure)
    assert failure.expected
    assert told in failure.message
    assert failure.hint


def test_pipes_missing_files_and_empty_folders_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    for name in ("pipe", "missing", "empty"):
        with pytest.raises(PathError):
            read_text((str(tmp_path / name),))
    with pytest.raises(PathError):
        read_text(("/dev/zero",))


def test_a_folder_of_too_many_files_of_any_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.training.learner.MOST_ENTRIES", 3)
    for name in ("a.txt", "b.bin", "c"):
        (tmp_path / name).write_text("Some text.")
    assert read_text((str(tmp_path),)).documents == ("Some text.",)
    (tmp_path / "folder").mkdir()
    with pytest.raises(PathError, match="has more than 3 files in it"):
        read_text((str(tmp_path),))


def test_a_folder_of_too_many_texts_is_refused(tmp_path: Path) -> None:
    for number in range(MOST_FILES + 1):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(PathError, match="1,001 texts"):
        read_text((str(tmp_path),))


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("One day. Two day", "One day."),
        ('He said, "Go!" And th', 'He said, "Go!"'),
        ("No end", ""),
        ("All of it? Yes.", "All of it? Yes."),
    ],
)
def test_a_story_ends_with_a_sentence(told: str, kept: str) -> None:
    assert whole_sentences(told) == kept
