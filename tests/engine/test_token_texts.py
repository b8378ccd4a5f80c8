"""GPT-2's alphabet of bytes against that of `tokenizers`."""

from __future__ import annotations

from tokenizers.pre_tokenizers import ByteLevel

from engine.token_texts import alphabet


def test_the_alphabet_of_bytes_is_that_of_tokenizers() -> None:
    byte_of = alphabet()
    assert sorted(byte_of.values()) == list(range(256))
    spell = ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
    for text in [*map(chr, range(0x800)), "€", "⏎", "한", "😀"]:
        ((spelled, _),) = spell(text)
        assert bytes(byte_of[each] for each in spelled) == text.encode()
