"""The download of a model that goes on while dialogs come and go, and the session with its model, too."""

from __future__ import annotations

from threading import Event
from typing import TYPE_CHECKING

from textual.worker import get_current_worker

from engine.errors import Cancelled, EngineError
from inspector.display import visible
from inspector.keys import key_for
from inspector.main.tool import Host
from inspector.state.disk_models import far

if TYPE_CHECKING:
    from engine.models_on_disk.download import DownloadProgress


class Downloads:
    """One download at a time.

    Args:
        host: Has it done in a thread, and tells its end.
    """

    def __init__(self, host: Host) -> None:
        self._host, self._stop = host, Event()
        self.spec = ""
        """The model that is being downloaded; empty for none."""
        self.progress: DownloadProgress | None = None
        self.ended = 0
        """How many downloads have ended."""
        self.outcome = ""
        """Of the last one, in a sentence; printable."""
        self.failed = False

    def start(self, spec: str) -> None:
        """Download what is missing of a model; nothing else is being downloaded."""
        stop = self._stop = Event()
        self.spec, self.progress, self.outcome = spec, None, ""

        def work() -> EngineError | None:
            from engine.models_on_disk.download import download  # not before somebody wants one

            worker = get_current_worker()  # the program's end cancels it
            try:
                download(spec, self._told, lambda: stop.is_set() or worker.is_cancelled)
            except EngineError as error:
                return error
            return None

        self._host.in_background(work, self._over)

    def stop(self) -> None:
        """End it; what came is kept."""
        self._stop.set()

    def _told(self, progress: DownloadProgress) -> None:
        self.progress = progress

    def _over(self, error: EngineError | None) -> None:
        name = visible(self.spec)
        self.spec, self.progress, self.ended = "", None, self.ended + 1
        self.failed = error is not None
        if isinstance(error, Cancelled):
            self.outcome = f"The download of {name} was stopped; what came is kept, ⏎ goes on with it"
            return
        self.outcome = visible(str(error)) if error is not None else f"{name} is on the disk now: ⏎ opens it"
        told = (
            visible(str(error))
            if error is not None
            else f"{name} is on the disk now. {key_for('open')} opens it."
        )
        self._host.announce(told, "Download", "error" if error is not None else "information")

    @property
    def situation(self) -> str:
        """How far it is, in a sentence; empty where nothing is being downloaded."""
        if not self.spec:
            return ""
        stop = "⏎ on it stops it, esc leaves it going"
        return f"Downloading {visible(self.spec)}: {far(self.progress)}. {stop}"
