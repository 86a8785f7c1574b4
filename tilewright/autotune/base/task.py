"""A task: one function to be made fast on one target, and how much of the model's time it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilewright.autotune.base.workload import Workload, canonical, described
from tilewright.core.errors import InputError
from tilewright.machine.target import Target
from tilewright.tensor_ir.ir import Func


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """``func`` (not scheduled) at the sizes ``dims``. ``weight``: its share of the model's run time, or how often it
    is called. ``former``: see :class:`Workload`. ``implementation``: by what its node is computed, where there is a
    choice; for people. ``described``: the function without its names; ``has_own_names``:
    whether it has others than that.

    ``streamed``: positions of parameters that a network reads once per inference, its weights; ``footprint``: bytes of
    all such in the network. A measurement finds them in the caches as far as the network would, no further.
    """

    func: Func
    target: Target
    dims: Mapping[str, int] = field(default_factory=dict)
    weight: float = 1.0
    name: str = ""
    streamed: tuple[int, ...] = ()
    footprint: int = 0
    former: tuple[Workload, ...] = ()
    implementation: str = ""
    described: Workload = field(init=False)
    has_own_names: bool = field(init=False)

    def __post_init__(self) -> None:
        missing = [d for d in self.func.dims if d not in self.dims]
        if missing:
            raise InputError(f"task {self.func.name}: expected a size for every dim, got none for {', '.join(missing)}")
        outside = [i for i in self.streamed if not 0 <= i < len(self.func.params) - self.func.outputs]
        if outside:
            raise InputError(f"task {self.func.name}: streamed: expected positions of inputs, got {outside[0]}")
        if not self.name:
            object.__setattr__(self, "name", self.func.name)
        nameless = canonical(self.func)
        object.__setattr__(self, "described", replace(described(nameless), former=self.former))
        object.__setattr__(self, "has_own_names", nameless != self.func)

    @property
    def workload(self) -> str:
        """SHA-256 of the function without its names, under which its records are kept."""
        return self.described.hash
