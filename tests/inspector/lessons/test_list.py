"""The list of lessons: a line each at every size, in the ink of its row."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from inspector.tools.lessons.dialogs import LessonsDialog
from inspector.widgets.option_list import SafeOptionList
from tests.inspector.rig import Rig


@pytest.mark.wide(1)
@pytest.mark.parametrize("size", [(160, 45), (120, 40), (100, 30), (80, 24), (60, 20)])
async def test_each_lesson_has_one_line_in_the_ink_of_its_row(rig: Rig, size: tuple[int, int]) -> None:
    """One of another ink can't be read where it is highlighted."""
    await rig.ready()
    await rig.press("S")
    assert isinstance(rig.app.screen, LessonsDialog)
    options = rig.app.screen.query_one(SafeOptionList)
    await rig.until(lambda: options.size.width > 0)
    prompts = [options.get_option_at_index(place).prompt for place in range(options.option_count)]
    assert len(prompts) >= 9
    for prompt in prompts:
        assert (
            cell_len(prompt.plain) <= options.scrollable_content_region.width - 2
        )  # a row has a blank each side
        assert {str(span.style) for span in prompt.spans} == {"bold"}
