"""The CPU a build is for, as data: what makes code legal (triple, features) and what makes it fast (caches, threads).

Detection of the host and parsing of ``"llvm -mcpu=..."`` are in ``codegen.host``; this room only holds the facts.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU.

    ``vector_bits``: width of one SIMD register; ``vector_registers``: how many there are.
    ``l1_bytes``, ``l2_bytes``: data caches of one core; ``l3_bytes``: the shared one (0 if none).
    ``threads``: how many threads a model built for this target uses by default.
    ``features``: LLVM feature string (``"+avx2,+fma"``).
    """

    triple: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    threads: int
    has_fma: bool = True

    @property
    def largest_cache(self) -> int:
        """Bytes of the largest cache."""
        return max(self.l2_bytes, self.l3_bytes)

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one vector register (at least 1)."""
        return max(1, self.vector_bits // (8 * itemsize))

    def tile_rows(self, vectors: int) -> int:
        """Rows of a register tile ``vectors`` registers wide: accumulators, one row of operands, one broadcast."""
        return max(1, (self.vector_registers - vectors - 1) // vectors)

    def lane_tile(self, columns: int) -> tuple[int, int]:
        """Rows and columns of a register tile of ``columns`` results a row, each a vector of partial sums."""
        wide = max(d for d in (1, 2, 3) if columns % d == 0)
        return self.tile_rows(wide), wide

    def with_threads(self, threads: int) -> Target:
        """The same CPU with another number of threads."""
        return dataclasses.replace(self, threads=threads)

    def legality_key(self) -> str:
        """What must match for machine code to run: triple, cpu and features."""
        return f"{self.triple} -mcpu={self.cpu} -mattr={self.features}"

    def key(self) -> str:
        """What must match for a default schedule to be the same: legality, register file, caches, threads."""
        caches = f"{self.l1_bytes}/{self.l2_bytes}/{self.l3_bytes}"
        return f"{self.legality_key()} v{self.vector_bits}x{self.vector_registers} caches={caches} t={self.threads}"
