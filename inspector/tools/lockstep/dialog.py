"""The dialog that chooses a second model: the session's in fewer bits or with an adapter, or one on the disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace

from engine.errors import PathError
from engine.files import typed
from engine.protocol import ModelFacts
from engine.settings import LoadSettings
from inspector.main.dialogs import Downloads
from inspector.main.dialogs.model import ModelDialog, Offer
from inspector.recordings.sessions import recent_models
from inspector.scales import FREE, size

BITS = (8, 4)
GROUP_SIZE = 64
"""The default of `OpenLockstep`."""
ADAPTER = "adapter_config.json"
"""The file by which a directory of an adapter is known."""


class SecondModelDialog(ModelDialog):
    """Asks for a second model beside the session's, which stays as it is.

    Args:
        load: How the session's model was loaded.
        facts: About it; None without one.
        downloads: Downloads models; continues when this is left.
    """

    HEADING: ClassVar[str] = "Compare with a second model"
    APPLY: ClassVar[str] = "Compare"
    WAYS: ClassVar[str] = "Type to filter, or a model's directory, a hub id, or an adapter's directory."

    def __init__(self, load: LoadSettings, facts: ModelFacts | None, downloads: Downloads) -> None:
        room = facts.room if facts is not None else None
        super().__init__(load, None, recent_models, downloads, room)
        self._facts = facts
        self.bits: int | None = None
        """The bits in which the session's model was chosen; None if another model was."""

    def besides(self) -> Sequence[Offer]:
        facts = self._facts
        if facts is None:
            return ()
        made = []
        wide = 4 if facts.dtype == "float32" else 2
        how = f"{facts.name} quantized while it is loaded, in groups of {GROUP_SIZE}, as mlx_lm.convert does"
        for bits in () if facts.quantized else BITS:
            needed = int(facts.parameters * (bits / 8 + 2 * wide / GROUP_SIZE))
            told = ("memory", f"about {size(needed)} {_beside(facts)}"), ("how", how)
            made.append(Offer(f"this model in {bits} bits", told, self.load, bits))
        # with an adapter, once its directory is typed, and without the one that it has
        name, memory = self.typed, ("memory", f"about {size(facts.weight_bytes)} {_beside(facts)}")
        if name and _holds_adapter(name):
            with_it = replace(self.load, adapter_path=name)
            made.append(Offer(f"this model with the adapter {name}", (memory,), with_it))
        elif not name:
            made.append(Offer("this model with an adapter …", (("how", _HOW),), None))
        if self.load.adapter_path is not None:
            without = replace(self.load, adapter_path=None)
            made.append(Offer("this model without its adapter", (memory,), without))
        return made

    def take(self, offer: Offer) -> None:
        if offer.load is None:
            self.say(_HOW)
            return
        self.bits = offer.bits
        self.dismiss(offer.load)


_HOW = "Type the adapter's directory: the one that mlx_lm.lora wrote, with adapters.safetensors."


def _beside(facts: ModelFacts) -> str:
    free = f"; {size(facts.free_bytes)} are {FREE[facts.memory_of]}" if facts.free_bytes is not None else ""
    return f"beside the {size(facts.weight_bytes)} of {facts.name}{free} (an estimate)"


def _holds_adapter(name: str) -> bool:
    try:
        return os.path.lexists(typed(name) / ADAPTER)
    except PathError:
        return False
