"""The CPU a build is for, as data: what makes code legal (triple, features) and what makes it fast (caches, threads).

Detection of the host and parsing of ``"llvm -mcpu=..."`` are in ``codegen.detect_cpu``; this room only holds the facts.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tilewright.machine.costs import Costs
from tilewright.machine.cpus import costs_of
from tilewright.machine.memory import PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Target:
    """A CPU, as code is made for it. ``compile(..., target=...)`` takes one, or the text that it is parsed from.

    ``triple``: architecture, system and environment, in LLVM's words (``x86_64-unknown-linux-gnu``). ``cpu``: LLVM's
    name of it (``znver4``). ``features``: LLVM's feature string (``"+avx2,+fma"``). ``has_fma``: a multiplication and
    an addition may become one operation. ``vector_bits``: width of a SIMD register in bits. ``vector_registers``: how
    many of them there are. ``l1_bytes``, ``l2_bytes``: data caches of one core. ``l3_bytes``: the cache that cores
    share; 0 if there is none. ``threads``: how many threads a model built for this target uses by default.
    ``own_costs``: costs to decide by instead of those that the table of CPUs has.

    >>> from tilewright.codegen.detect_cpu import parse_target
    >>> target = parse_target("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
    >>> target.cpu, target.vector_bits, target.lanes(4)
    ('znver4', 512, 16)
    >>> tilewright.compile("model.onnx", target="llvm -mcpu=znver4", threads=2).threads
    2
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
    own_costs: Costs | None = None

    @property
    def enabled(self) -> frozenset[str]:
        """The names of its features: ``avx2``."""
        return frozenset(f[1:] for f in self.features.split(",") if f.startswith("+"))

    @property
    def pointer_bytes(self) -> int:
        """Bytes of an address: 8 where the name of the architecture says that it has 64 bits, as LLVM's names do."""
        return 8 if "64" in self.triple.split("-")[0] or self.triple.startswith("s390x") else 4

    @property
    def costs(self) -> Costs:
        """What work costs on it: its own, or those of its CPU in :mod:`tilewright.machine.cpus`."""
        return self.own_costs or costs_of(self.cpu)

    @property
    def largest_cache(self) -> int:
        """Bytes of the largest cache."""
        return max(self.l2_bytes, self.l3_bytes)

    @property
    def l1_ways(self) -> int:
        """Lines that a set of the first-level cache holds, if it finds its sets by an address's place in its page."""
        return self.l1_bytes // PAGE_BYTES

    @property
    def l1_working_bytes(self) -> int:
        """Bytes of results that stay in the first-level cache while operands pass through it: half."""
        return self.l1_bytes // 2

    @property
    def l1_panel_bytes(self) -> int:
        """Bytes of a panel that stay in the first-level cache while another operand and results pass: three eighths."""
        return self.l1_bytes * 3 // 8

    @property
    def l1_sums_bytes(self) -> int:
        """Bytes of sums that come back to the first-level cache every few steps, and may be late: two thirds."""
        return self.l1_bytes * 2 // 3

    @property
    def resident_bytes(self) -> int:
        """Bytes that stay in the second-level cache while others of the same size pass through it: half."""
        return self.l2_bytes // 2

    @property
    def beside_bytes(self) -> int:
        """Bytes that stay in the second-level cache beside an operand that stays there too: a quarter."""
        return self.l2_bytes // 4

    @property
    def beyond_bytes(self) -> int:
        """Bytes of an array that comes from memory: twice the last-level cache, but at most 512 MiB, as a virtual
        machine names a cache that others fill too."""
        return min(2 * self.l3_bytes, 512 << 20)

    @property
    def filling_bytes(self) -> int:
        """Bytes of a working set that has the second-level cache to itself: three quarters."""
        return self.l2_bytes * 3 // 4

    @property
    def nearby_bytes(self) -> int:
        """Bytes of an operand that is read again from near enough, in part from the second-level cache: twice that."""
        return 2 * self.l2_bytes

    @property
    def l3_share_bytes(self) -> int:
        """Bytes of the last-level cache, which others use too, that a kernel's operand may take: a quarter."""
        return self.l3_bytes // 4

    @property
    def has_wide_vectors(self) -> bool:
        """True where half of a vector may run at a higher clock: vectors of more than 256 bits."""
        return self.vector_bits > 256

    @property
    def most_tile_vectors(self) -> int:
        """Vectors of the widest register tile: half of the registers, at most six."""
        return min(6, self.vector_registers // 2)

    @property
    def result_registers(self) -> int:
        """Registers for results where one operand is broadcast and the other has few vectors: three quarters."""
        return self.vector_registers * 3 // 4

    @property
    def full_registers(self) -> int:
        """Registers with results that leave room for one step's operands and no more: all but an eighth. Of 16 two are
        left, for a vector and a broadcast value; a tile of as many rows as fit in 32 leaves four. Where broadcast
        values are loaded ahead, twice as many are left."""
        return self.vector_registers - self.vector_registers // (4 if self.broadcast_registers > 1 else 8)

    @property
    def broadcast_registers(self) -> int:
        """Registers for values that are multiplied with a whole vector: x86 reads them with the multiplication, Arm
        loads them before, and LLVM a few of them at once; with fewer it moves the results about in every step."""
        return 3 if self.triple.startswith(("aarch64", "arm64")) else 1

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one vector register (at least 1)."""
        return max(1, self.vector_bits // (8 * itemsize))

    def tile_rows(self, vectors: int) -> int:
        """Rows of a register tile ``vectors`` registers wide: accumulators, one row of operands, broadcast values."""
        return max(1, (self.vector_registers - vectors - self.broadcast_registers) // vectors)

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
        """What must match for a default schedule to be the same: legality, register file, caches, threads, costs."""
        caches = f"{self.l1_bytes}/{self.l2_bytes}/{self.l3_bytes}"
        own = "" if self.own_costs is None else f" {self.own_costs}"
        vectors = f"v{self.vector_bits}x{self.vector_registers}"
        return f"{self.legality_key()} {vectors} caches={caches} t={self.threads}{own}"
