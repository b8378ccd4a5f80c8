"""Lossless packing of rows of logits and vocabularies into records, and bounded unpacking.

The tokens that a filter keeps, and the probability that it removes, depend on sums over the complete row: a rounded row
would give other numbers, and near a filter's edge other tokens. So nothing is rounded. The logits of a model that
computes in bfloat16 or float16 have 16 bits, those of one that computes in float32 have 32. Bytes of equal significance
are stored together, since the highest ones repeat: a row of the bundled model's 4,096 tokens takes 5.6 KiB in bfloat16
and 13.8 KiB in float32 (tests/engine/logits/test_packing.py), and a third more in an uncompressed file.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from engine.errors import StepError
from engine.protocol import LogitsRow, ModelVocabulary, RowType
from engine.sampling.ranking import Row
from engine.token_texts import TokenTexts

MOST_TOKENS = 2**19
"""Maximum vocabulary that is unpacked; the largest in use have 262,144 tokens."""
MOST_TEXT = 16 * 2**20
"""Maximum total bytes of its tokens; the largest vocabularies in use have 2 MiB."""
LEVEL = 1
"""zlib's compression level: level 6 takes twice the time, 2 ms instead of 0.9, and saves 2 to 4 %."""
_BYTES: dict[RowType, int] = {"bfloat16": 2, "float16": 2, "float32": 4}


def pack_row(node: int, row: Row) -> LogitsRow:
    """Pack the logits after a node.

    Args:
        node: The node.
        row: Logits, float32, shape (vocabulary,).
    """
    dtype = _smallest(row)
    numbers = row.astype("<f2" if dtype == "float16" else "<f4").view(np.uint8).reshape(row.size, -1)
    planes = numbers[:, -_BYTES[dtype] :].T
    return LogitsRow(node, row.size, dtype, zlib.compress(planes.tobytes(), LEVEL))


def _smallest(row: Row) -> RowType:
    bits = row.view(np.uint32)
    if not (bits & 0xFFFF).any():
        return "bfloat16"
    with np.errstate(over="ignore"):
        half = row.astype(np.float16).astype(np.float32)
    return "float16" if (half.view(np.uint32) == bits).all() else "float32"


def unpack_row(record: LogitsRow) -> Row:
    """Unpack a row of logits, float32, shape (vocabulary,), equal to the packed row in every bit.

    Raises:
        StepError: Its bytes don't have the length for its number of tokens, or are damaged.
    """
    width = _BYTES[record.dtype]
    planes = _inflated(record.packed, record.tokens, record.tokens * width)
    numbers = np.zeros((record.tokens, 2 if record.dtype == "float16" else 4), np.uint8)
    numbers[:, -width:] = np.frombuffer(planes, np.uint8).reshape(width, record.tokens).T
    row = numbers.view("<f2" if record.dtype == "float16" else "<f4").reshape(record.tokens)
    return np.asarray(row, np.float32)


def pack_vocabulary(tokens: TokenTexts) -> ModelVocabulary:
    """Pack the tokens of a model; of a token with more than 65,535 bytes, which no model has, only the first bytes."""
    ids = range(tokens.vocabulary)
    raws = [tokens.raw(token)[:0xFFFF] for token in ids]
    sizes = np.array([len(raw) for raw in raws], "<u2").tobytes()
    special = tuple(token for token in ids if tokens.is_special(token))
    packed = zlib.compress(sizes + b"".join(raws))
    return ModelVocabulary(tokens.vocabulary, packed, special, tokens.spared)


def unpack_vocabulary(record: ModelVocabulary) -> list[bytes]:
    """Unpack the bytes of each token.

    Raises:
        StepError: The record is damaged.
    """
    content = _inflated(record.packed, record.tokens, MOST_TEXT + 2 * MOST_TOKENS, exact=False)
    if len(content) < 2 * record.tokens:
        raise _damaged()
    sizes: npt.NDArray[np.uint16] = np.frombuffer(content, "<u2", record.tokens)
    ends = (2 * record.tokens + np.cumsum(sizes, dtype=np.int64)).tolist()
    if ends[-1] != len(content):
        raise _damaged()
    return [content[begin:end] for begin, end in zip([2 * record.tokens, *ends], ends, strict=False)]


def _inflated(packed: bytes, tokens: int, most: int, exact: bool = True) -> bytes:
    """Decompress, but never to more bytes than a record of so many tokens can have."""
    if not 0 < tokens <= MOST_TOKENS:
        raise StepError(
            f"The logits recorded here are of {tokens:,} tokens; at most {MOST_TOKENS:,} are read.", _MEND
        )
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(packed, most + 1)
    except zlib.error:
        raise _damaged() from None
    if not inflater.eof or len(content) > most or (exact and len(content) < most):
        raise _damaged()
    return content


_MEND = "Take another copy of the recording, or continue live with its model."


def _damaged() -> StepError:
    return StepError("The logits recorded here are damaged.", _MEND)
