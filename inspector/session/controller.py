"""One session on the screen, put together: client, setup, transport, navigation and what they know."""

from __future__ import annotations

from engine.protocol import Prefill
from engine.settings import LoadSettings, Settings, SpeculationSettings
from inspector.session.client import Backend, EngineClient
from inspector.session.history import History
from inspector.session.navigation import Navigation
from inspector.session.sampler_queries import SamplerQueries
from inspector.session.setup import PrefillControl, Runs, Setup
from inspector.session.transport import LiveTransport, Transport
from inspector.state.timeline import Phase, Timeline


class Controller:
    """The parts of one session, each with its own job.

    Args:
        backend: Takes the commands.
        load: The model to open.
        settings: Of the sampler.
        prompt: Prefilled as soon as the model is there; an empty one waits for the person.
    """

    def __init__(self, backend: Backend, load: LoadSettings, settings: Settings, prompt: Prefill) -> None:
        self.client = client = EngineClient(backend)
        self.queries = SamplerQueries(client, settings)
        self.prefill = PrefillControl(client)
        self.runs = Runs(client)
        self.setup = Setup(client, self.prefill, self.runs, self.queries, load, settings, prompt)
        self.history = History(client, self.queries, self.setup, self.runs)
        self.navigation = Navigation(client, lambda: self.setup.settings)
        self.live = LiveTransport(client, self.prefill, self.runs, self.setup)
        self.transport: Transport = self.live
        """The live one, or that of the recording on show."""
        self.speculation = SpeculationSettings()
        """What speculative decoding begins with."""
        self.opening = False
        """True if a recording is about to take the place of what is on show."""
        client.runs = lambda: self.transport.running

    @property
    def timeline(self) -> Timeline:
        """The session's timeline."""
        return self.client.timeline

    @property
    def resting(self) -> bool:
        """True if nothing is under way that anybody waits for."""
        timeline = self.client.timeline
        settled = timeline.phase in (Phase.EMPTY, Phase.READY, Phase.FAILED)
        return settled and not (self.opening or timeline.running or self.client.outstanding)

    @property
    def stepping(self) -> bool:
        """True if a distribution is on show, which stays, so that steps, moves and choices mean something."""
        return self.client.timeline.phase in (Phase.READY, Phase.RUNNING) and not self.opening
