"""A request of a server on the screen: its reply becomes a branch, the panel tells what it came to."""

from __future__ import annotations

from pathlib import Path

from engine.protocol import Prefill
from engine.settings import LoadSettings, Settings
from inspector.app import InspectorApp
from inspector.served.opening import ServedFile, exchanges_of, opened_request
from inspector.views import with_request
from inspector.views.served import RequestsDialog
from inspector.widgets.fields import SafeInput
from inspector.widgets.lists import PickList
from tests.inspector.views.sampler.test_what_if_real import until

SERVED = Path(__file__).parents[2] / "served" / "served.har"
AS_SERVED = LoadSettings(dtype="file", blas="bundled")


def text_of(app: InspectorApp) -> str:
    area, strips = app.main.area, [*app.screen._compositor.render_strips()]
    shown = strips if app.top is not app.main else [strip.crop(area.x, area.right) for strip in strips]
    words = " ".join(strip.text for strip in shown)
    return " ".join(word for word in words.split() if word.strip("│╭╮╰╯─"))


async def test_a_request_opens_with_its_reply_beside_it_and_another_takes_its_place() -> None:
    exchanges = tuple(exchanges_of(str(SERVED)))
    opened = opened_request(ServedFile(str(SERVED), exchanges), exchanges[0])
    request = opened.request
    app = InspectorApp(
        AS_SERVED,
        request.settings,
        Prefill(request.prompt, request.chat, messages=request.messages, options=request.options),
        tools=with_request(opened),
    )
    async with app.run_test(size=(120, 40)) as pilot:
        timeline = lambda: app.controller.timeline  # noqa: E731
        await until(lambda: "tokens, all equal" in text_of(app) or "others by rounding" in text_of(app))
        served = [step for step in timeline().steps if step.origin == "served"]
        assert len(served) == 24
        assert "mlx_lm's generator gives the same text again" in text_of(app)

        await pilot.press("7", "R")
        await until(lambda: isinstance(app.top, RequestsDialog))
        assert app.top.query_one(PickList).count == 12
        await pilot.press("down", "down", "enter")
        await until(lambda: "tokens, all equal" in text_of(app) and "request 5 of" in text_of(app))
        assert [step.id for step in timeline().steps] == list(
            opened_request(opened.file, exchanges[2]).reply.exact_ids
        )
        assert "as many as at the server" in text_of(app)

        await pilot.press("left", "enter")  # a step of one's own: the reply stays on show
        await until(lambda: not app.controller.client.outstanding)
        assert "request 5 of" in text_of(app)

        await pilot.press("p")  # another prompt: it is no reply to that
        await pilot.press("X", "ctrl+s")
        await until(lambda: "No request of a server is open." in text_of(app))
    assert app.closed_in_time


async def test_a_bias_of_a_token_that_the_model_lacks_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    ask = '"prompt": "Once", "max_tokens": 3, "temperature": 0, "logit_bias": {"99999": 5, "5": -3}'
    path.write_text(
        f'{{"request": {{{ask}}}, "response": {{"choices": [{{"text": " upon", "finish_reason": "length"}}]}}}}'
    )
    exchanges = tuple(exchanges_of(str(path)))
    opened = opened_request(ServedFile(str(path), exchanges), exchanges[0])
    request = opened.request
    app = InspectorApp(
        LoadSettings(),
        request.settings,
        Prefill(request.prompt, request.chat, options=request.options),
        tools=with_request(opened),
    )
    async with app.run_test(size=(120, 40)) as pilot:
        await until(lambda: "the model has no tokens with these ids: 99999" in text_of(app))
        assert app.controller.setup.settings.logit_bias == ((5, -3.0),)
        assert app.controller.setup.settings.max_tokens == 3
        await pilot.press("7", "R")
        await until(lambda: isinstance(app.top, RequestsDialog))
        await pilot.press("enter")
        await until(lambda: "the model has no tokens with these ids: 99999" in text_of(app))
        assert app.controller.setup.settings.logit_bias == ((5, -3.0),)
    assert app.closed_in_time


async def test_a_file_that_is_none_is_told_in_the_dialog(tmp_path: Path) -> None:
    app = InspectorApp(LoadSettings(), Settings(), Prefill("Once", None))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(lambda: app.controller.timeline.prompts.prefilled)
        await pilot.press("7", "R")
        await until(lambda: isinstance(app.top, RequestsDialog))
        app.top.query_one(SafeInput).value = str(tmp_path / "none")
        await pilot.press("enter")
        await until(lambda: "There is no file" in text_of(app))
        await pilot.press("escape")
        await until(lambda: app.top is app.main)
    assert app.closed_in_time
