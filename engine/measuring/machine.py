"""This machine, the versions that matter, and properties of its arithmetic and its device."""

from __future__ import annotations

import os
import platform

import mlx.core as mx
import numpy as np

from engine.measuring.roofline import seconds_of_nothing
from engine.memory import memory_available, memory_installed
from engine.model.facts import free_bytes
from engine.model.forward import precision, product_error
from engine.protocol import Machine, MachineRead, ModelFacts


def machine(facts: ModelFacts) -> Machine:
    """This machine, and the versions that matter."""
    from importlib import metadata  # slow to import, and used only here

    return Machine(
        system=f"{platform.system()} {platform.release()}",
        # MLX's name of the device: `Apple M2 Pro`, a GPU or a CPU; on every Mac `platform` says only `arm`
        processor=str(mx.device_info().get("device_name") or platform.machine()),
        cores=os.cpu_count() or 1,
        memory_bytes=memory_installed(),
        python=platform.python_version(),
        mlx=metadata.version("mlx"),
        mlx_lm=metadata.version("mlx-lm"),
        backend=facts.backend,
        blas=facts.blas,
    )


def read_machine(facts: ModelFacts) -> MachineRead:
    """Measure the properties of this machine that a model's numbers depend on."""
    return MachineRead(
        machine=machine(facts),
        numpy=np.__version__,
        memory_available=memory_available(),
        memory_for_models=free_bytes(),
        product_error=product_error(),
        product_type=precision("float32"),
        nothing_ms=seconds_of_nothing() * 1000,
        late_token=_reads_a_late_token(),
    )


def _reads_a_late_token() -> bool:
    """True if a lazy graph reads a token that numpy writes into its array after the graph was built.

    `PipelinedForward` needs this. It works if host and device share the array's memory; otherwise the graph reads a
    copy, and a run would continue with the previous token.
    """
    slot, table = mx.zeros((1, 1), dtype=mx.int32), mx.arange(8)
    mx.eval(slot, table)
    token = np.array(slot, copy=False)
    for expected in (3, 5):
        built = table[slot] * 2
        token[0, 0] = expected
        mx.async_eval(built)
        if np.array(built)[0, 0] != 2 * expected:
            return False
    return True
