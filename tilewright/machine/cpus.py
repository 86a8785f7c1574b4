"""Named CPUs, by LLVM's names: what the manuals of AMD, Intel and Arm say, and the costs that estimates take.

Sources of the cores: AMD's Software Optimization Guides for families 17h (models 30h and later), 19h and 1Ah; Intel's
Optimization Reference Manual (Skylake server, Ice Lake, Golden Cove); Arm's guides for Neoverse N1 and V1.
"""

from __future__ import annotations

from tilewright.machine.costs import GENERIC, Core, Costs

_GOLDEN_COVE = Costs(Core(fma_latency=4, fma_ports=2, load_bytes=128, store_bytes=64, loads=3, width=6))

CPUS: dict[str, Costs] = {
    "generic": GENERIC,
    "znver2": Costs(Core(fma_latency=5, fma_ports=2, load_bytes=64, store_bytes=32, loads=2, width=6)),
    "znver3": Costs(Core(fma_latency=4, fma_ports=2, load_bytes=64, store_bytes=32, loads=3, width=6)),
    "znver4": Costs(  # halves of 512 bits in both ports
        Core(fma_latency=4, fma_ports=1, load_bytes=64, store_bytes=32, loads=3, width=6)
    ),
    "znver5": Costs(Core(fma_latency=4, fma_ports=2, load_bytes=128, store_bytes=64, loads=4, width=8)),
    "skylake-avx512": Costs(Core(fma_latency=4, fma_ports=2, load_bytes=128, store_bytes=64, loads=2, width=4)),
    "icelake-server": Costs(Core(fma_latency=4, fma_ports=2, load_bytes=128, store_bytes=64, loads=2, width=5)),
    "sapphirerapids": _GOLDEN_COVE,
    "emeraldrapids": _GOLDEN_COVE,
    "neoverse-n1": Costs(Core(fma_latency=4, fma_ports=2, load_bytes=32, store_bytes=32, loads=2, width=4)),
    "neoverse-v1": Costs(Core(fma_latency=4, fma_ports=4, load_bytes=48, store_bytes=32, loads=3, width=8)),
}


def costs_of(cpu: str) -> Costs:
    """The costs of a CPU by its LLVM name; those of ``generic`` if the table does not have it."""
    return CPUS.get(cpu, GENERIC)
