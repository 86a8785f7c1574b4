"""No numeric constant of a machine stands outside the room ``machine``.

Two searches: module constants whose name or docstring speaks of a machine's units, and cache sizes or numbers of
registers that are combined or compared with a literal. What the first finds and is not a fact of a machine is in
``REVIEWED``, with what it is instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tilewright.tests.sources import PACKAGE, parsed, source_files

UNITS = re.compile(
    r"\b(bytes?|(nano|micro)seconds?|ns|cycles?|latency|ports?|registers?|vectors?|lanes?|caches?|memory|flops|"
    r"multiply-adds?|processors?|cpu)\b",
    re.IGNORECASE,
)
SIZES = {"l1_bytes", "l2_bytes", "l3_bytes", "largest_cache", "vector_registers", "vector_bits"}

REVIEWED = {
    "CHAINS = 12": "the length of a loop that measures; more than any CPU needs",
    "FLATTEN_WEIGHT_BYTES = 1 << 30": "a limit on the size of a model",
    "FULL_LANES = 64": "a limit of the primitive",
    "GROWTH_BYTES = 1 << 20": "a limit on the size of a model",
    "HEAD_BYTES = 512": "the layout of a struct",
    "LARGE = 256 << 10": "a policy: which arrays are worth a page of their own",
    "LEAST = 64 << 10": "a policy: which tensors stay in a file",
    "LOCAL_BYTES = 256 * 1024": "a limit on a thread's stack",
    "MAX_ELEMENTS = 2 ** 38": "a limit on a model",
    "MAX_LANES = 1024": "a limit of the primitive",
    "MAX_MADE_BYTES = 1 << 28": "a limit on what a build makes",
    "_DEPTHWISE = 1.0": "a share of time, of which a target says its own",
    "_BYTES_OF_LANE = 4": "bytes in 32 bits",
    "_INTERLEAVED = 16": "bytes within which instructions of x86 interleave, in registers of any size",
    "_SIGNS = 2155905152": "the highest bit of each byte of a word",
    "_WORD_BYTES = 4": "bytes in 32 bits",
    "_LANE = 16": "bytes within which instructions of x86 interleave, in registers of any size",
    "MIN_CHANNELS = 4": "what is as exact in float32",
    "MIN_LOCAL_BYTES = 64 << 10": "a limit of the search",
    "MOST_IN_ONE_FILE = (2 << 30) - (1 << 20)": "the format of a file",
    "ONES = 16843009": "four bytes of 1",
    "QUANTIZED_BYTES = 24": "what folding needs for an element",
    "_REGISTERS = (16, 32, 64)": "numbers of 32 bits in one, two and four registers of AVX-512",
    "_KEPT = 2": "what an instruction of x86 leaves to add up takes two others",
    "_LIMIT = 128": "the range of an int16",
    "_SHUFFLE = 0.055": "a ratio of estimates",
    "SMALL = 1024": "a policy: which tensors stay in a message",
    "SMALL_BYTES = 64 * 1024": "a policy: which constants are compared",
    "STACK_LIMIT = 512 * 1024": "a limit on a thread's stack",
    "TRANSIENT_BYTES = 1 << 27": "a limit on what a build makes",
    "BYTE, BYTES = (8, 4)": "bits of a byte, and bytes in 32 bits",
    "LARGEST_GROUP = 32": "the range of an int32",
    "_ALL, _HIGHEST_APART = (((0, 1, 2),), ((0, 1), (2,)))": "the range of an int32",
    "_BITS, _BYTE = (22, 8)": "the form of numbers",
    "_PER_GROUP = 0.3": "a ratio of estimates",
    "_PER_SUM = 5.0": "a ratio of estimates",
    "_WINDOW_APART = 11.0": "a ratio of estimates",
    "_PART_BYTES, _WORD_BYTES = (2, 4)": "bytes in 16 and 32 bits",
    "_MOST = 2": "a policy: when all temporaries are placed anew",
    "_A, _B = (4, 6)": "numbers that instructions have in them",
    "_ALONG_DEPTH = 0.6": "a ratio of estimates",
    "_DEFAULT_CACHE_BYTES = 1 << 30": "the size of the object cache on disk",
    "_DIGEST_BYTES = 32": "the layout of a file",
    "_DOUBLINGS = 6": "what the search tries",
    "_DYNAMIC_EXTENT = 8": "an assumed size",
    "_FAR = 4 << 20": "a policy: how often a log says again what many lines need",
    "_FEWEST = 4": "a limit of the rule",
    "_FIRST_ROWS, _FIRST_BYTES = (64, 1 << 26)": "the first size of an array that grows",
    "_LANES = 8": "the vectors of a text, which LLVM cuts to size",
    "_LARGE_MODEL = 32 << 20": "a policy: when memory is given back",
    "_LARGEST = 1 << 30": "a policy: of which models in memory a digest is made",
    "_LARGEST_INSIDE = 1 << 30": "a limit of the code model",
    "_LONGEST = 4 << 20": "a limit of the log format",
    "_LONGEST_TRACE = 4 << 20": "a limit of the log format",
    "_MAX_VECTORS = 8": "the widest panel that is tried",
    "_MOST_BYTES = 4 << 30": "a limit on what is measured",
    "OF_BYTES = 0.25": "a ratio of sizes",
    "_PAIRS = 1 << 16": "a block of a host operator",
    "_PARTS = 2": "how often a rule cuts",
    "IN_MEMORY = 30.0": "a ratio of estimates",
    "_LEAST_ELEMENTS = 1 << 12": "below it every way takes a microsecond",
    "_LEAST_ELEMENTS = 1 << 16": "below it a weight is small everywhere",
    "_PER_ROW, _PER_HALF = (1.35, 0.5)": "ratios of estimates",
    "_PER_REAL = 4.0": "a ratio of estimates",
    "_PER_NIBBLE, _PER_BYTE = (1.55, 1.25)": "ratios of estimates",
    "_READ_BYTES = 128 << 20": "what a measurement reads",
    "_SIDE_BY_SIDE = 0.95": "a ratio of estimates",
    "_LARGEST = (1 << 31) - 1": "the format of a file",
    "_LONGEST = (2 ** 31 - 1) // (255 * 255)": "the range of an int32",
    "_LEAST = 0.75": "a policy: which places of temporaries stay",
    "_LEAST_OF_TABLE = 1 << 16": "a policy: which constants are stored in 16 bits",
    "ONE_BY_ONE = 4.0": "a ratio of estimates",
    "_MOST_VECTORS = 4": "what the packed layout of weights is cut into",
    "_WINOGRAD = 1.0": "a ratio of estimates",
    "_SPATIAL_LEVELS = 4": "the form of records of another program",
    "_SLICE = 2500000": "the system's time slice",
    "_SMALL = 1 << 20": "a policy: which constants are copied",
    "_TAIL_BYTES = 16 << 10": "how much of a text is shown",
    "_TILE_DATA = 18": "a number of the system's interface",
    "_VARINT, _FIXED64, _BYTES, _FIXED32 = (0, 1, 2, 5)": "the format of a file",
    "_VECTOR_COUNTS = (1, 2, 4, 8)": "what the search tries",
    "_WORKING_BYTES = 64": "what making a table needs for a tap",
    "_WRITTEN_OUT = 4096": "a limit on code size",
}
"""Constants that speak of bytes, vectors and so on, and are limits, policies or layouts of ours."""


def constants(path: Path) -> Iterator[tuple[str, str, str]]:
    """Each numeric constant of a module: its name, its value, and its docstring if it has one."""
    body = parsed(path).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and is_numeric(node.value):
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
            doc = after.value if isinstance(after, ast.Expr) else None
            yield name.strip("()"), ast.unparse(node.value), str(doc.value) if isinstance(doc, ast.Constant) else ""


def is_numeric(e: ast.expr) -> bool:
    """True for a number, a formula of numbers, and a tuple of such."""
    if isinstance(e, ast.BinOp | ast.UnaryOp | ast.Tuple):
        parts = [x for x in ast.iter_child_nodes(e) if isinstance(x, ast.expr) and not isinstance(x, ast.Load)]
        return bool(parts) and all(map(is_numeric, parts))
    return isinstance(e, ast.Constant) and type(e.value) in (int, float)


def elsewhere() -> list[Path]:
    return [p for p in source_files() if p.relative_to(PACKAGE).parts[0] != "machine"]


def test_no_constant_has_a_machine_s_unit() -> None:
    found = {
        f"{name} = {value}"
        for path in elsewhere()
        for name, value, doc in constants(path)
        if UNITS.search(name.replace("_", " ")) or UNITS.search(doc)
    }
    unknown, gone = sorted(found - REVIEWED.keys()), sorted(REVIEWED.keys() - found)
    assert not unknown, "a number of a machine belongs into machine/costs.py; any other into REVIEWED"
    assert not gone, "reviewed, but not there any more"


def test_no_share_of_a_cache_is_taken_elsewhere() -> None:
    found = [
        f"{path.relative_to(PACKAGE).as_posix()}:{node.lineno}: {ast.unparse(node)}"
        for path in elsewhere()
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.BinOp | ast.Compare)
        if any(isinstance(x, ast.Attribute) and x.attr in SIZES for x in ast.iter_child_nodes(node))
        if any(is_numeric(x) for x in ast.iter_child_nodes(node) if isinstance(x, ast.expr))
    ]
    assert not found, "what of a cache or of the registers may be used is a property of Target"


def test_both_searches_find() -> None:
    tree = ast.parse('_RATE = 2 * 6.0\n"""Bytes in a nanosecond."""\n_NAMES = ("a", 2)\nx = t.l2_bytes // 2')
    numeric = [n for n in tree.body if isinstance(n, ast.Assign) and is_numeric(n.value)]
    assert [ast.unparse(n.targets[0]) for n in numeric] == ["_RATE"]
    assert UNITS.search("Bytes in a nanosecond.")
