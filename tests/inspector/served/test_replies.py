"""Replies in the forms of several servers; what they name is checked against what they say, and repaired."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.served.replies import Reply, ServedReply, ServedToken, read_reply, repaired, spelled, spells

CHAT = {
    "choices": [{
        "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hé!"},
        "logprobs": {"content": [
            {"token": "H", "logprob": -0.5, "bytes": [72],
             "top_logprobs": [{"token": "H", "logprob": -0.5, "bytes": [72]},
                              {"token": "h", "logprob": -1.5, "bytes": [104]}]},
            {"token": "bytes", "logprob": -0.1, "bytes": [195], "top_logprobs": []},
            {"token": "bytes", "logprob": -9999.0, "bytes": [169], "top_logprobs": []},
            {"token": "!", "logprob": 0.0, "bytes": [33], "top_logprobs": []},
        ]},
    }],
    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 5}},
}  # fmt: skip
COMPLETION = {
    "choices": [{
        "text": " a b", "finish_reason": "length",
        "logprobs": {"tokens": [" a", "bytes:\\x20\\x62"], "token_logprobs": [-1.0, None],
                     "top_logprobs": [{" a": -1.0, " c": -2.0}, None], "text_offset": [0, 2]},
    }],
}  # fmt: skip
VLLM = {"choices": [{"message": {"content": "x"}, "logprobs": {"content": [
    {"token": "token_id:7", "logprob": -1.0, "bytes": [116, 111], "top_logprobs": []}]}}]}  # fmt: skip
LLAMA = {"content": "hi", "tokens_predicted": 1, "tokens_evaluated": 3, "stop_type": "eos",
         "completion_probabilities": [
    {"id": 4, "token": "hi", "bytes": [104, 105], "logprob": -0.2,
     "top_logprobs": [{"id": 4, "token": "hi", "bytes": [104, 105], "logprob": -0.2}]},
]}  # fmt: skip
LLAMA_PROBS = {"content": "hi", "completion_probabilities": [{"id": 4, "token": "hi", "prob": 0.5,
               "top_probs": [{"id": 4, "token": "hi", "prob": 0.5}]}]}  # fmt: skip
SGLANG = {"text": "hi", "meta_info": {"prompt_tokens": 2, "completion_tokens": 1, "cached_tokens": 0,
          "output_token_logprobs": [[-0.3, 8, "hi"]],
          "output_top_logprobs": [[[-0.3, 8, "hi"], [-2, 9, None]]]}}  # fmt: skip
TGI = {"generated_text": "hi", "details": {"finish_reason": "length",
       "tokens": [{"id": 3, "text": "hi", "logprob": -1}],
       "top_tokens": [[{"id": 3, "text": "hi", "logprob": -1}]]}}  # fmt: skip
OLLAMA = {"message": {"content": "hi"}, "done_reason": "stop", "eval_count": 1, "prompt_eval_count": 4,
          "logprobs": [{"token": "hi", "logprob": -0.1}]}  # fmt: skip


def read(body: Any, status: int = 200, cut: bool = False) -> ServedReply:
    return read_reply(Reply(status, cut, body, ()))


def streamed(*events: Any, cut: bool = False) -> ServedReply:
    return read_reply(Reply(200, cut, None, events))


def test_openais_chat() -> None:
    reply = read(CHAT)
    assert (reply.form, reply.text, reply.finish) == ("OpenAI chat", "Hé!", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (9, 4, 5)
    assert [each.raw for each in reply.tokens] == [b"H", b"\xc3", b"\xa9", b"!"]
    assert [each.logprob for each in reply.tokens] == [-0.5, -0.1, None, 0.0]
    assert [each.raw for each in reply.tokens[0].top] == [b"H", b"h"]
    assert spells(reply)


def test_openais_completions() -> None:
    reply = read(COMPLETION)
    assert (reply.form, reply.text) == ("OpenAI completions", " a b")
    assert reply.tokens[0] == ServedToken(
        b" a", None, -1.0, (ServedToken(b" a", None, -1.0), ServedToken(b" c", None, -2.0))
    )
    assert (reply.tokens[1].raw, reply.tokens[1].logprob) == (b" b", None)
    assert spells(reply)


def test_vllm_with_ids_alone() -> None:
    token = read(VLLM).tokens[0]
    assert (token.id, token.raw, token.logprob) == (7, None, -1.0)  # its bytes spell the words "token_id:7"


@pytest.mark.parametrize(
    ("body", "form", "id", "logprob", "prompt"),
    [
        (LLAMA, "llama.cpp", 4, -0.2, 3),
        (LLAMA_PROBS, "llama.cpp", 4, math.log(0.5), None),
        (SGLANG, "SGLang", 8, -0.3, 2),
        (TGI, "TGI", 3, -1.0, None),
        (OLLAMA, "ollama", None, -0.1, 4),
    ],
)
def test_forms_of_other_servers(
    body: Any, form: str, id: int | None, logprob: float, prompt: int | None
) -> None:
    reply = read(body)
    assert (reply.form, reply.text, reply.prompt_tokens) == (form, "hi", prompt)
    (token,) = reply.tokens
    assert (token.raw, token.id, token.logprob) == (b"hi", id, logprob)
    assert spells(reply)


def test_a_stream_is_joined() -> None:
    def part(delta: Any, **more: Any) -> Any:
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": None, **more}]}

    named = {"logprobs": {"content": [{"token": "b", "logprob": -1.0, "bytes": [98], "top_logprobs": []}]}}
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    usage = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    parts = (
        ": keepalive 1/2",
        part({"reasoning": "hm"}),
        part({"content": "b"}, **named),
        end,
        usage,
        "[DONE]",
    )
    reply = streamed(*parts)
    assert (reply.text, reply.reasoning, reply.finish, reply.cut) == ("b", "hm", "stop", False)
    assert (reply.prompt_tokens, reply.completion_tokens) == (3, 2)
    assert [each.raw for each in reply.tokens] == [b"b"]
    assert streamed(*parts[:3]).cut


def test_a_refusal_is_told_in_its_own_words() -> None:
    assert read({"error": "no such model"}, 404).error == "404 no such model"
    assert read({"error": {"message": "bad", "type": "x"}}, 400).error == "400 bad"
    assert read("Not Found", 404).error == "404 Not Found"
    assert read(CHAT).error == ""


def test_the_status_of_a_refusal_is_not_made_up() -> None:
    assert read({"error": {"message": "expired"}}, 0).error == "expired"
    assert read({"error": None, "response": "hi"}).error == ""
    assert read(None, 500).error == "500 null"
    assert streamed({"error": {"message": "overloaded"}}).error == "overloaded"


def test_only_the_first_of_several_choices_is_read() -> None:
    """The order in which they are listed or streamed says nothing; their tokens are counted together."""
    listed = [
        {"index": 1, "text": "one", "finish_reason": "stop"},
        {"index": 0, "text": "zero", "finish_reason": "length"},
    ]
    reply = read({"choices": listed, "usage": {"prompt_tokens": 3, "completion_tokens": 9}})
    assert (reply.text, reply.finish, reply.choices, reply.completion_tokens) == ("zero", "length", 2, None)
    assert reply.notes == ("The reply has 2 choices: only the first one is read here.",)

    def part(index: int, text: str, finish: str | None = None) -> Any:
        return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]}

    reply = streamed(part(1, "b"), part(0, "a"), part(1, "B", "stop"), part(0, "A", "length"), "[DONE]")
    assert (reply.form, reply.text, reply.finish, reply.choices) == ("OpenAI chat", "aA", "length", 2)


def test_a_refusal_of_the_model_is_its_answer() -> None:
    """OpenAI puts it, and its logprobs, in the place of the content."""
    named = [{"token": "No", "logprob": -1.0, "bytes": [78, 111]}]
    reply = read({"choices": [{"message": {"content": None, "refusal": "No"},
                               "logprobs": {"content": None, "refusal": named}}]})  # fmt: skip
    assert (reply.text, [each.raw for each in reply.tokens]) == ("No", [b"No"])


def test_halves_of_a_character_are_judged_once_a_stream_is_joined() -> None:
    def part(text: str) -> Any:
        return {"choices": [{"delta": {"content": text}}]}

    assert streamed(part("a\ud83d"), part("\ude00"), "[DONE]").text == "a😀"
    assert streamed(part("a"), part("\ud83d"), "[DONE]").text == "a�"
    assert read({"error": "\ud800"}, 400).error == "400 �"
    assert (
        read({"response": "x\ud800", "logprobs": [{"token": "\ud800", "logprob": -1}]}).tokens[0].raw
        == "�".encode()
    )


@pytest.mark.parametrize("with_bytes", [False, True])
def test_vllm_may_name_tokens_as_pieces_of_the_vocabulary(with_bytes: bool) -> None:
    def entry(piece: str) -> Any:
        more = {"bytes": list(piece.encode())} if with_bytes else {}
        return {"token": piece, "logprob": -1.0, **more}

    named = [{**entry(each), "top_logprobs": [entry(each), entry("Ġno")]} for each in ("æĺ¯", "åķĬ", "Ġok")]
    reply = read({"choices": [{"message": {"content": "是啊 ok"}, "logprobs": {"content": named}}]})
    assert [each.raw for each in reply.tokens] == ["是".encode(), "啊".encode(), b" ok"]
    assert reply.tokens[0].top[1].raw == b" no"
    assert spells(reply)
    named = {"tokens": ["▁ok", "▁", "<0xE6>", "<0x98>", "<0xAF>"], "token_logprobs": [-1.0] * 5}
    reply = read({"choices": [{"text": " ok 是", "logprobs": named}]})
    assert spelled(reply.tokens) == " ok 是".encode()
    plain = {"tokens": ["Ġ", " is"], "token_logprobs": [-1.0] * 2}
    assert spelled(read({"choices": [{"text": "Ġ is", "logprobs": plain}]}).tokens) == "Ġ is".encode()


def test_llama_cpp_until_december_2024() -> None:
    probs = [{"tok_str": " of", "prob": 0.02}, {"tok_str": " to", "prob": 0.9665}]
    last = {"content": "byte: \\xe6", "probs": [{"tok_str": "byte: \\xe6", "prob": 0.5}]}
    reply = read({"content": " to", "stopped_eos": True, "completion_probabilities": [
        {"content": " to", "probs": probs}, last, {"content": " x", "probs": []}]})  # fmt: skip
    assert [each.raw for each in reply.tokens] == [b" to", b"\xe6", b" x"]
    assert [each.logprob for each in reply.tokens] == [math.log(0.9665), math.log(0.5), None]
    assert [each.raw for each in reply.tokens[0].top] == [b" of", b" to"]
    assert reply.finish == "eos"


def test_tokens_of_an_unknown_form_are_none() -> None:
    reply = read({"content": "hi", "completion_probabilities": [{"word": "hi", "prob": 0.5}]})
    assert (reply.text, reply.tokens) == ("hi", ())


@pytest.mark.parametrize(
    ("body", "finish"),
    [
        ({"choices": [{"text": "x", "finish_reason": "stop", "stop_reason": None}]}, "stop"),
        ({"choices": [{"text": "x", "finish_reason": "stop", "stop_reason": "girl"}]}, "stop_sequence"),
        ({"text": "x", "meta_info": {"finish_reason": {"type": "stop", "matched": 2}}}, "stop"),
        ({"text": "x", "meta_info": {"finish_reason": {"type": "stop", "matched": "girl"}}}, "stop_sequence"),
        ({"text": "x", "meta_info": {"finish_reason": {"type": "length", "length": 8}}}, "length"),
    ],
)
def test_a_stop_string_is_told_from_an_end_of_sequence(body: Any, finish: str) -> None:
    assert read(body).finish == finish


def test_pieces_of_both_kinds_of_vocabulary() -> None:
    def reply(*pieces: str) -> ServedReply:
        named = [{"id": n, "token": piece, "logprob": -1.0} for n, piece in enumerate(pieces)]
        return read({"choices": [{"message": {"content": ""}, "logprobs": {"content": named}}]})

    assert spelled(reply("Ġa", "Ã©", "Ċ").tokens) == b" a\xc3\xa9\n"
    assert spelled(reply("▁a", "é", "<0x0A>").tokens) == " aé\n".encode()
    assert reply("Ġa").form == "mlx_lm"
    assert reply("Ġa").exact_ids == (0,)


# ---- tokens that are named wrongly ----------------------------------------------------------------

WORDS = [" the", " cat", " sat", " on", " mat", ".", "\n", " a", " ca", "t", " é"]


@given(st.data())
def test_a_reply_that_names_others_is_repaired_where_its_lists_allow(data: st.DataObject) -> None:
    """As mlx_lm.server: the entry named is any one of the list, which may lack the token that was drawn."""
    served = data.draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12))
    tokens, listed = [], []
    for word in served:
        others = data.draw(st.lists(st.sampled_from(WORDS), max_size=4, unique=True))
        entries = [each for each in others if each != word]
        if inside := data.draw(st.integers(0, 4)) > 0:
            entries.append(word)
        listed.append(inside)
        entries = data.draw(st.permutations(entries))
        top = tuple(ServedToken(each.encode(), WORDS.index(each), -0.5 - n) for n, each in enumerate(entries))
        named = top[0] if top else ServedToken(b"?", 99, -1.0)
        tokens.append(ServedToken(named.raw, named.id, named.logprob, top))
    reply = ServedReply("mlx_lm", "".join(served), "", (), tuple(tokens), "length", None, None, None)
    found = repaired(reply)
    assert len(found) == len(served)
    assert spelled(found).decode() == "".join(served)
    assert sum(each.id is None for each in found) <= sum(not each for each in listed)
    for each, token in zip(found, tokens, strict=True):
        if each.id is not None:
            entry = next(one for one in token.top if one.id == each.id)
            assert (each.raw, each.logprob) == (entry.raw, entry.logprob)


def test_the_first_blank_and_the_end_of_sequence_are_allowed_for() -> None:
    def token(*words: str) -> ServedToken:
        top = tuple(ServedToken(word.encode(), n, -1.0 - n) for n, word in enumerate(words))
        return ServedToken(top[0].raw, 0, -1.0, top)

    tokens = (token(" x", " One"), token(" day"), token(".", "<|im_end|>"))
    reply = ServedReply("mlx_lm", "One day", "", (), tokens, "stop", None, None, None)
    assert not spells(reply)
    assert [each.raw for each in repaired(reply)] == [b" One", b" day", b"<|im_end|>"]


def test_a_long_reply_is_repaired_in_bounded_time() -> None:
    top = tuple(ServedToken(word.encode(), n, -1.0 - n) for n, word in enumerate(WORDS))
    tokens = tuple(ServedToken(b"?", 99, -1.0, top) for _ in range(1500))
    text = "".join(WORDS[n % 11] for n in range(1500))
    found = repaired(ServedReply("mlx_lm", text, "", (), tokens, "length", None, None, None))
    assert spelled(found).decode() == text


texts = st.text(st.characters(categories=["L", "Nd", "Cs"]), max_size=6)
"""Halves of characters among them, which JSON can have."""
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
names = st.sampled_from(["choices", "logprobs", "content", "tokens", "top_logprobs", "token", "bytes", "message",
                         "delta", "usage", "meta_info", "details", "error", "text", "finish_reason", "token_logprobs",
                         "completion_probabilities", "generated_text", "logprob", "prob", "id"])  # fmt: skip
bodies = st.recursive(
    json_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


@given(bodies)
def test_any_json_is_read_without_a_fault(body: Any) -> None:
    reply = read(json.loads(json.dumps(body)))
    assert all(each.logprob is None or math.isfinite(each.logprob) for each in reply.tokens)
    "".join((reply.text, reply.reasoning, reply.error, *reply.calls)).encode()
    spells(reply)
    repaired(reply)
