"""The precision that a log has found for a network on this machine."""

from __future__ import annotations

from tilewright.autotune.lookup.workloads import networks_of
from tilewright.autotune.records.database import Database
from tilewright.lowering.plan import LoweredModel
from tilewright.machine.target import Target


def recorded_precision(records: Database, lowered: LoweredModel, target: Target) -> str | None:
    """``fp32`` or ``bf16`` by the latest choice for the network; None without one. ``lowered``: in float32."""
    networks = networks_of(lowered)
    found = records.choice(networks[0], target, networks)
    return None if found is None else found.implementation
