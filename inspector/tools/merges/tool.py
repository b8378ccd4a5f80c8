"""A tokenizer taken apart as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.evidence import ExportPart
from inspector.main.tool import Host, Tool, ToolActions
from inspector.tools.merges.control import MERGES_SCREEN, MergesControl
from inspector.widgets.actions import Action, Needs


class MergesActions(ToolActions):
    """Takes the tokenizer apart in a screen of its own."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.control = MergesControl(host)

    def open(self) -> None:
        """Open the word of the token that is looked at."""
        from inspector.tools.merges.screen import MergesScreen

        self.open_screen(MergesScreen(self.host, self.control))


def _exports() -> tuple[ExportPart, ...]:
    from inspector.tools.merges.evidence import MERGES_PART

    return (MERGES_PART,)


MERGES = Tool(
    "merges",
    "Tokenizer",
    MergesActions,
    screen=True,
    actions=(
        Action("merges", "Merges",
            "Show how a word became its tokens, merge by merge, or compare two tokenizers over the text.",
            MergesActions.open, Needs.DISTRIBUTION, looks=True,
            synonyms="merges, merge ladder, byte pair encoding, bpe, unigram, wordpiece, sentencepiece, subwords, "
            "compare tokenizers", view="pieces"),
    ),
    owners=(MERGES_SCREEN,),
    exports=_exports,
)  # fmt: skip
