"""A tokenizer taken apart as a tool: the key that opens its screen."""

from __future__ import annotations

from inspector.main.tool import Tool
from inspector.tools.merges.control import MERGES_SCREEN, MergesActions
from inspector.widgets.actions import Action, Needs


def _open(own: MergesActions) -> None:
    from inspector.tools.merges.screen import MergesScreen

    own.open_screen(MergesScreen(own.host, own))


MERGES = Tool(
    "merges",
    "Tokenizer",
    MergesActions,
    actions=(
        Action("merges", "Merges",
            "Show how a word became its tokens, merge by merge, or compare two tokenizers over the text.",
            _open, Needs.DISTRIBUTION, looks=True,
            synonyms="merges, merge ladder, byte pair encoding, bpe, unigram, wordpiece, sentencepiece, subwords, "
            "compare tokenizers", view="pieces"),
    ),
    owners=(MERGES_SCREEN,),
    exports=("inspector.tools.merges.evidence:MERGES_PART",),
)  # fmt: skip
