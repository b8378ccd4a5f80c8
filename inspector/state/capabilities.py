"""The states of all capabilities that come with the program, a line each."""

from __future__ import annotations

from inspector.state.batch import Batches
from inspector.state.beams import BeamHistory
from inspector.state.capability import CapabilityState
from inspector.state.inside import Looks
from inspector.state.lockstep import LockstepSoFar
from inspector.state.measured import Measured
from inspector.state.speculation import Speculation

STATES: tuple[type[CapabilityState], ...] = (
    BeamHistory,
    Batches,
    Looks,
    Measured,
    Speculation,
    LockstepSoFar,
)
