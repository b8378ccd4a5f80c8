"""Grammars with models of every making, over conversations, and with the settings that act next to them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace
from tokenizers import Tokenizer, decoders, models

from engine.breakpoints import UNSURE, Breakpoints
from engine.decoding.beam import search
from engine.errors import SettingsError, StepError
from engine.grammar import states
from engine.grammar.states import Matcher, vocabulary_of
from engine.grammar_settings import Grammar
from engine.model.load import Loaded, load
from engine.model.tokens import PlainTokenizer, Tokens
from engine.session.node_records import stop_reached
from engine.session.run import BreakpointEvaluator, run
from engine.session.session import Session
from engine.settings import BeamSettings, LoadSettings, Settings
from engine.task import never
from tests.engine import sessions
from tests.engine.grammar.test_matcher import PlainVocabulary
from tests.engine.model.test_tokens import sentencepiece  # noqa: F401  a fixture
from tests.engine.sessions import go_back
from tests.system import python

YES = Grammar("regex", "yes|no")


@pytest.fixture(autouse=True)
def no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these grammars is hostile; a trial takes a process."""
    monkeypatch.setattr(states, "try_out", lambda grammar: None)


@pytest.fixture
def loaded() -> Loaded:
    return load(LoadSettings())


def begun(loaded: Loaded, **settings: object) -> Session:
    own = Settings(**{"grammar": YES, **settings})  # type: ignore[arg-type]
    return sessions.begun(loaded, "Once upon a time", own, echo=None)


def completion(session: Session) -> str:
    at = session.tree[session.node]
    ids = session.tree.tail(session.node, at.depth - at.start)
    return session.tokens.join([token for token in ids if token not in session.tokens.eos_ids])


def reason(session: Session) -> str | None:
    end = stop_reached(session, session.node)
    return end and end.reason


# ---- models ----------------------------------------------------------------------------------


def test_a_model_without_an_end_of_sequence_ends_with_its_grammar(loaded: Loaded) -> None:
    loaded.tokens.eos_ids = ()
    session = begun(loaded)
    list(run(session, never))
    assert completion(session) in ("yes", "no")
    assert reason(session) == "grammar"
    reading = session.next.grammar
    assert (reading.state, reading.allowed, reading.mass) == ("complete", 0, 0.0)
    session.step()  # past a stop as past every other
    assert session.next.grammar == replace(reading, allowed=4096, mass=1.0, state="left", forced=b"")
    go_back(session, 1)
    with pytest.raises(StepError, match="The grammar forbids"):
        session.choose(5)


def test_beams_of_a_model_without_an_end_of_sequence_are_refused_under_a_grammar(loaded: Loaded) -> None:
    loaded.tokens.eos_ids = ()
    session = begun(loaded)
    with pytest.raises(StepError, match="no end-of-sequence token"):
        list(search(session, BeamSettings(width=2, max_tokens=4)))


def test_each_of_several_ends_is_allowed_where_the_text_may_end(loaded: Loaded) -> None:
    loaded.tokens.eos_ids = (0, 2, 77)
    session = begun(loaded, grammar=Grammar("regex", "(yes)?"))
    state = session.position.node_logits.grammar
    assert state.allowed is not None
    assert {0, 2, 77} <= {int(token) for token in np.flatnonzero(state.allowed)}
    for end in (0, 2, 77):
        session.choose(end)
        assert session.next.grammar.state == "ended"
        go_back(session, 1)


def test_ids_beyond_the_embedding_and_without_bytes_are_no_tokens() -> None:
    wide = Tokens(SimpleNamespace(**_wrapper()), 6)  # the tokenizer has 8
    matcher = Matcher.begin(Grammar("regex", "[a-h]+"), vocabulary_of(wide))
    assert matcher.mask().shape == (6,)
    assert matcher.allowed_ids() == [0, 1, 2, 3, 4]  # 5 ends, where the text may
    padded = Tokens(SimpleNamespace(**_wrapper()), 12)  # and of 12 rows 4 have no token
    matcher = Matcher.begin(Grammar("regex", "[a-h]*"), vocabulary_of(padded))
    assert matcher.mask().shape == (12,)
    assert matcher.allowed_ids() == [0, 1, 2, 3, 4, 5, 6, 7]


def _wrapper() -> dict[str, object]:
    own = Tokenizer(models.BPE(vocab={piece: place for place, piece in enumerate("abcdefgh")}, merges=[]))
    own.decoder = decoders.ByteLevel()
    return {"_tokenizer": PlainTokenizer(own, {}), "eos_token_ids": [5], "has_chat_template": False}


def test_pieces_of_sentencepiece_are_spaces_and_bytes(sentencepiece: Tokens) -> None:  # noqa: F811
    matcher = Matcher.begin(Grammar("regex", "é|( there)+"), vocabulary_of(sentencepiece))
    allowed = {sentencepiece.raw(token) for token in matcher.allowed_ids()}
    assert b"\xc3" in allowed
    assert b" " in allowed
    assert all(b" there".startswith(raw) or b" there there there".startswith(raw) or raw == b"\xc3"
               for raw in allowed)  # fmt: skip


def test_what_no_token_spells_is_said_and_leaves_everything_as_it_was(loaded: Loaded) -> None:
    words = PlainVocabulary([b"a", b"b", b"<end>"], special=(2,), eos_ids=(2,))
    with pytest.raises(StepError, match="no token of the model continues it"):
        Matcher.begin(Grammar("regex", "c"), vocabulary_of(words)).mask()
    session = begun(loaded, grammar=None)
    before = session.settings, session.next
    first = states.GrammarState(Matcher.begin(Grammar("regex", "c"), vocabulary_of(words)))
    session.node_reader.grammars.compiled = lambda grammar: first  # type: ignore[assignment,method-assign]
    with pytest.raises(StepError, match="no token of the model"):
        session.configure(Settings(grammar=YES))
    assert (session.settings, session.next) == before


def test_a_grammar_that_holds_no_more_allows_everything() -> None:
    state = states.GrammarState(None, "ended")
    assert (state.allowed, state.complete, state.certain) == (None, False, False)
    assert state.allows(7)
    assert state.mass(np.zeros(3, np.float32)) == 1.0
    assert state.after(7) is state
    assert state.first_forbidden([7], ()) is None


# ---- where it begins -------------------------------------------------------------------------


def test_each_answer_of_a_conversation_is_matched_anew(loaded: Loaded) -> None:
    session = begun(loaded)
    for _ in range(2):
        list(run(session, never))
        assert completion(session) in ("yes", "no")
        ids = session.tokens.encode(" and then", bare=True)
        list(session.prefill("", ids, parent=session.node))
        assert session.next.grammar.state == "open"


def test_from_here_on_and_before_it_nothing_is_cut(loaded: Loaded) -> None:
    session = begun(loaded, grammar=None)
    free = [session.next.picked]
    for _ in range(3):
        session.step()
        free.append(session.next.picked)
    here = session.tree[session.node].depth
    session.configure(Settings(grammar=Grammar("regex", "yes|no", begin=here)))
    list(run(session, never))
    assert completion(session).endswith(("yes", "no"))
    go_back(session, 4 + session.tree[session.node].depth - here - 1)
    assert session.next.grammar is None
    assert session.next.picked == free[0]


def test_a_prompt_after_the_begin_begins_anew(loaded: Loaded) -> None:
    session = begun(loaded, grammar=Grammar("regex", "yes|no", begin=2))
    assert session.next.grammar is not None  # 2 is within the prompt: it begins at the prompt's end
    assert session.next.grammar.state == "open"


def test_a_token_of_a_prompt_that_becomes_one_of_the_completion_is_matched(loaded: Loaded) -> None:
    session = begun(loaded, grammar=Grammar("regex", "(yes|no)+"))
    go_back(session, 1)
    at = session.tree[session.node]
    token = session.tree[at.newest].token if at.newest is not None else -1
    assert session.next.grammar.state == "open"
    session.choose(token, leave_grammar=True)  # the prompt's last token, now a step
    assert session.next.grammar.state == "left"


# ---- next to other settings ------------------------------------------------------------------


def test_min_tokens_never_bars_the_only_end(loaded: Loaded) -> None:
    session = begun(loaded, min_tokens=30)
    list(run(session, never))
    assert completion(session) in ("yes", "no")
    assert reason(session) == "grammar"
    *_, end = search(begun(loaded, min_tokens=30), BeamSettings(width=2, max_tokens=9))
    assert {(line.text, line.reason) for line in end.ranking} <= {("yes", "eos"), ("no", "eos")}


def test_beams_of_few_texts_are_these_texts(loaded: Loaded) -> None:
    *_, end = search(begun(loaded), BeamSettings(width=6, max_tokens=9))
    assert all(line.text in ("yes", "no") for line in end.ranking)
    assert end.greedy.text in ("yes", "no")
    assert {line.reason for line in end.ranking} == {"eos"}


def test_the_stage_is_the_first(loaded: Loaded) -> None:
    session = begun(loaded, temp=0.8, seed=5)
    assert [each.name for each in session.next.stages] == ["grammar", "temperature"]


def test_a_text_that_is_certain_is_sure_and_a_grammar_that_fights_the_model_stops_a_run(
    loaded: Loaded,
) -> None:
    session = begun(loaded, grammar=Grammar("regex", "Quetzalcoatl(us|es)"))
    reading = session.next.grammar
    assert reading.forced == b"Quetzalcoatl"
    assert reading.mass < 0.01
    begin, unsure = session.node, BreakpointEvaluator(session, [UNSURE])
    list(run(session, never, unsure))
    assert completion(session) == "Quetzalcoatl"
    assert unsure.hits
    session.move(begin)
    fights = BreakpointEvaluator(session, [Breakpoints(mass_below=0.01)])
    fights.evaluate(session.position.node_logits)
    assert "mass kept" in fights.hits[0]


def test_a_tree_of_another_model_has_its_own_masks(loaded: Loaded) -> None:
    other = load(LoadSettings())
    other.tokens.eos_ids = (5,)
    one, two = begun(loaded, grammar=Grammar("regex", "a?")), begun(other, grammar=Grammar("regex", "a?"))
    masks = [each.position.node_logits.grammar for each in (one, two)]
    allowed = [
        {int(token) for token in np.flatnonzero(state.allowed)} for state in masks if state is not None
    ]
    assert allowed[0] - allowed[1] == {0, 2}
    assert 5 in allowed[1]


def test_a_grammar_that_cannot_be_used_leaves_the_settings(
    loaded: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    session = begun(loaded, grammar=None)
    before = session.settings
    with pytest.raises(SettingsError, match="column 1: unclosed"):
        session.configure(Settings(grammar=Grammar("regex", "[0-9")))
    assert session.settings is before
    assert Breakpoints(mass_below=0.1).conditions == ("mass < 10 %",)


@pytest.mark.slow
def test_without_a_grammar_llguidance_is_not_imported() -> None:
    code = (
        "from engine.patches.imports import import_mlx_lm; import_mlx_lm()\n"
        "import sys, json; from engine.model.load import load; from engine.session.session import Session\n"
        "from engine.settings import LoadSettings, Settings\n"
        "session = Session(load(LoadSettings()), Settings())\n"
        "list(session.prefill('', session.tokens.encode('Once upon a time'))); session.step()\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('llguidance')]))"
    )
    done = python(code, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_an_end_at_max_tokens_says_that_the_grammars_text_is_not_finished(loaded: Loaded) -> None:
    """A number without bounds may have any number of digits, and a model may write them until max tokens."""
    for text, detail in (
        ("[0-9]{9}", "2 tokens, reached before the output was complete"),
        ("[0-9]{1,9}", "2 tokens"),
    ):
        session = begun(loaded, grammar=Grammar("regex", text), max_tokens=2)
        list(run(session, never))
        end = stop_reached(session, session.node)
        assert (end.reason, end.detail) == ("length", detail)
