"""The bounds of the settings: what lies outside is refused in one line, and nothing inside overflows."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from msgspec.structs import fields

from engine.breakpoints import Breakpoints
from engine.errors import SettingsError
from engine.sampling.pipeline import STAGE_MAKERS, StageContext, sample
from engine.sampling.ranking import Masses
from engine.setting import GRAMMAR, MOST_BIAS, Setting, grouped
from engine.settings import (
    BY_NAME,
    FIELDS,
    GROUPS,
    LEAST_PENALTY,
    LEAST_TEMP,
    LOAD_FIELDS,
    LOAD_GROUPS,
    ORDERS,
    STAGES,
    LoadSettings,
    Settings,
    SpeculationSettings,
    changed,
    check,
    for_model,
    with_defaults,
)


@pytest.mark.parametrize("temp", [1e-39, 1e-38, 1e-5, math.nextafter(LEAST_TEMP, 0), -0.5, 101, math.nan])
def test_a_temperature_out_of_range_is_refused_with_the_range(temp: float) -> None:
    with pytest.raises(SettingsError) as caught:
        check(Settings(temp=temp))
    assert str(caught.value) == f"temperature must be 0, or a number from 0.001 to 100, not {temp}."
    with pytest.raises(SettingsError, match=r"temperature must be 0, or a number from 0\.001 to 100"):
        BY_NAME["temp"].parse(str(temp))


@pytest.mark.parametrize(
    ("name", "bounds"),
    [("top_k", "a whole number from 0 to 2147483647"), ("xtc_threshold", "a number from 0 to 0.5")],
)
def test_the_ends_of_a_range_are_named_as_they_are(name: str, bounds: str) -> None:
    assert BY_NAME[name].bounds == bounds


@pytest.mark.parametrize("temp", [0, LEAST_TEMP, 1, 100])
def test_the_ends_of_the_range_are_in_it(temp: float) -> None:
    assert check(Settings(temp=temp)).temp == temp


def test_a_repetition_penalty_and_a_bias_that_would_overflow_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"repetition penalty must be 0, or a number from 0\.001 to 100"):
        check(Settings(repetition_penalty=1e-39))
    with pytest.raises(SettingsError, match=r"the value for token 3 must be a number from -1e\+09 to 1e\+09"):
        check(Settings(logit_bias=((3, 1e39),)))
    with pytest.raises(SettingsError, match="a token id is 0 or more, not -1"):
        check(Settings(logit_bias=((0, 1.0), (-1, 1.0))))


def test_a_pattern_that_python_warns_of_is_taken_without_a_warning() -> None:
    assert check(Breakpoints(regex="[[a]--b]")).regex == "[[a]--b]"


@pytest.mark.parametrize(
    ("typed", "biases"),
    [
        ("451=-5, 2=3", ((451, -5.0), (2, 3.0))),
        ('" cat"', ((" cat", -100.0),)),
        (r'"a,\"b\n"=1, 5=2', (('a,"b\n', 1.0), (5, 2.0))),
    ],
)
def test_biases_are_of_ids_and_of_texts(typed: str, biases: tuple[tuple[int | str, float], ...]) -> None:
    assert BY_NAME["logit_bias"].biases(typed) == biases


@pytest.mark.parametrize("typed", ["451", '" cat', '" cat" 3', "5=", '""=1', "cat=1"])
def test_a_bias_that_cannot_be_read_is_refused(typed: str) -> None:
    with pytest.raises(SettingsError, match=r"must be ID=VALUE or .*, with a comma between two of them"):
        BY_NAME["logit_bias"].biases(typed)


def test_a_text_of_several_tokens_has_no_bias_and_they_are_named() -> None:
    tokens = {" cat": [(512, " cat")], " cat dog": [(512, " cat"), (528, " dog")]}

    def token_id(text: str) -> int:
        return BY_NAME["logit_bias"].one_token(text, tokens[text])

    assert BY_NAME["logit_bias"].parse('" cat"=-2', token_id) == ((512, -2.0),)
    with pytest.raises(SettingsError, match=r"^“ cat dog” is 2 tokens: “ cat” \(512\), “ dog” \(528\)"):
        BY_NAME["logit_bias"].parse('" cat dog"', token_id)


@pytest.mark.parametrize(
    ("name", "value", "typed"),
    [
        ("temp", 0.7, "0.7"),
        ("seed", 12, "12"),
        ("stop", ("the end",), "the end"),
        ("stop", (), ""),
        ("logit_bias", ((3, -5.0), (4, 0.25)), "3=-5, 4=0.25"),
        ("max_kv_size", None, ""),
        ("max_kv_size", 64, "64"),
    ],
)
def test_a_value_is_written_as_it_is_typed(name: str, value: object, typed: str) -> None:
    assert BY_NAME[name].format(value) == typed
    assert BY_NAME[name].parse(typed) == value


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (Settings(stop=("",)), "must not be empty"),
        (Settings(stop=("x", "\ud800")), "is not valid Unicode"),
        (Settings(temp="x"), "not 'x'"),  # type: ignore[arg-type]
        (LoadSettings(no_kv_cache=5), "must be on or off, not 5"),  # type: ignore[arg-type]
    ],
)
def test_values_that_no_setting_takes_are_refused(settings: Settings | LoadSettings, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        check(settings)


def test_a_text_has_a_bias_only_with_a_model() -> None:
    assert BY_NAME["logit_bias"].parse("451=-5, 2=3") == ((451, -5.0), (2, 3.0))
    with pytest.raises(SettingsError, match="No model is at hand to look up “ cat”"):
        BY_NAME["logit_bias"].parse('" cat"=1')


def test_what_a_stage_shows_of_its_settings() -> None:
    assert [STAGES["logit-bias"].shown(Settings(logit_bias=((3, 1.0),) * count)) for count in (1, 2)] == [
        "1 id", "2 ids",
    ]  # fmt: skip
    assert [STAGES["min-p"].shown(Settings(min_p=0.05, min_tokens_to_keep=count)) for count in (1, 2)] == [
        "0.05", "0.05≥2",
    ]  # fmt: skip


def test_settings_of_a_model_and_of_another_one() -> None:
    mine = with_defaults(
        Settings(temp=0.3, top_p=0.2, min_p=0.1), [("top_k", 20.0), ("temp", 0.6)], {"top_p"}
    )
    assert mine == Settings(temp=0.6, top_p=0.2, top_k=20)
    assert type(mine.top_k) is int
    assert changed(mine, temp=1.0).temp == 1.0
    with pytest.raises(SettingsError):
        changed(mine, temp=-1.0)
    old = LoadSettings("a", "adapter", extra_eos_token=("x",), max_kv_size=8)
    assert for_model(old, "a") is old
    assert for_model(old, "b") == LoadSettings("b", max_kv_size=8)
    assert [SpeculationSettings().name, SpeculationSettings("model", "x/y").name] == ["lookup", "x/y"]


def test_a_large_vocabulary_has_room_for_its_rows_unless_a_person_says_how_much() -> None:
    assert LoadSettings().kept_logits_bytes(4_096) == 64 * 2**20
    assert LoadSettings().kept_logits_bytes(152_000) == 400 * 152_000 * 4
    assert LoadSettings(kept_logits_mib=0).kept_logits_bytes(152_000) == 0
    assert LoadSettings(kept_logits_mib=5).kept_logits_bytes(4_096) == 5 * 2**20


def test_every_setting_has_a_place_and_every_stage_a_setting() -> None:
    assert {field.group for field in FIELDS} == set(GROUPS)
    assert {field.group for field in LOAD_FIELDS} == {"", *LOAD_GROUPS}
    assert sum(len(grouped(FIELDS, title)) for title in GROUPS) == len(FIELDS)
    assert {field.before for field in FIELDS} - {"", *BY_NAME} == set()
    assert {field.needs for field in BY_NAME.values()} - {"", *BY_NAME} == set()
    assert set(STAGE_MAKERS) == {GRAMMAR, *STAGES}
    for order in ORDERS.values():
        assert sorted(order) == sorted(STAGES)
    for cls, declared in ((Settings, FIELDS), (LoadSettings, LOAD_FIELDS)):
        assert {field.name for field in fields(cls)} - {field.name for field in declared} <= {"grammar"}


@pytest.mark.parametrize("field", [*FIELDS, *LOAD_FIELDS], ids=lambda field: field.name)
def test_the_default_of_each_setting_is_in_range_and_off(field: Setting) -> None:
    field.check(field.default)
    settings = (Settings if field in FIELDS else LoadSettings)()
    assert getattr(settings, field.name) == field.default
    assert not field.on(settings)
    assert field.label
    assert field.help


@given(
    st.builds(
        Settings,
        temp=st.sampled_from([LEAST_TEMP, 1.0, 100.0]),
        repetition_penalty=st.sampled_from([LEAST_PENALTY, 100.0]),
        presence_penalty=st.sampled_from([-100.0, 100.0]),
        frequency_penalty=st.sampled_from([-100.0, 100.0]),
        logit_bias=st.sampled_from([((0, MOST_BIAS),), ((0, -MOST_BIAS),)]),
        top_p=st.sampled_from([1e-300, 0.9]),
        min_p=st.sampled_from([5e-324, 1.0]),
        sampler_order=st.sampled_from(list(ORDERS)),
    ),
    st.sampled_from([0.0, 30.0, 1e4]),
)
@budget(max_examples=150, deadline=None)
def test_the_ends_of_all_ranges_give_a_distribution_without_a_warning(
    settings: Settings, scale: float
) -> None:
    row = (np.random.default_rng(1).standard_normal(40) * scale).astype(np.float32)
    row[7] = np.finfo(np.float32).min  # as models bar tokens
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probs = sample(Masses(row), check(settings), 0.5, StageContext(path=(0, 1, 7))).probs
    assert math.isclose(probs.sum(), 1, rel_tol=1e-12)
    assert (probs >= 0).all()
