"""Named CPUs, by LLVM's names: what the manuals of AMD, Intel and Arm say, and the costs that estimates take."""

from __future__ import annotations

from tilewright.machine.costs import GENERIC, Core, Costs

_SERVER = Costs(Core(fma_latency=4, fma_ports=2, load_bytes=128))

CPUS: dict[str, Costs] = {
    "generic": GENERIC,
    "znver2": Costs(Core(fma_latency=5, fma_ports=2, load_bytes=64)),
    "znver3": Costs(Core(fma_latency=4, fma_ports=2, load_bytes=64)),
    "znver4": Costs(Core(fma_latency=4, fma_ports=1, load_bytes=64)),  # halves of 512 bits in both ports
    "znver5": _SERVER,
    "skylake-avx512": _SERVER,
    "icelake-server": _SERVER,
    "sapphirerapids": _SERVER,
    "emeraldrapids": _SERVER,
    "neoverse-n1": Costs(Core(fma_latency=4, fma_ports=2, load_bytes=32)),
    "neoverse-v1": Costs(Core(fma_latency=4, fma_ports=4, load_bytes=48)),
}


def costs_of(cpu: str) -> Costs:
    """The costs of a CPU by its LLVM name; those of ``generic`` if the table does not have it."""
    return CPUS.get(cpu, GENERIC)
