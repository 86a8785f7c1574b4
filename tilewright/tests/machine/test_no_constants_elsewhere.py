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
    r"multiply-adds?|processors?|cpu|cache lines?)\b",
    re.IGNORECASE,
)
SIZES = {"l1_bytes", "l2_bytes", "l3_bytes", "largest_cache", "vector_registers", "vector_bits"}

REVIEWED = {
    "apply_best: _MOST_BYTES": "a limit on what is measured",
    "cache: _DIGEST_BYTES": "the layout of a file",
    "checks: _LANES": "the vectors of a text, which LLVM cuts to size",
    "choose_algorithms: _FEWEST_ROWS, _WHOLE": "a limit of the algorithm, the same for all CPUs, as the graph is",
    "compact_buffer: LOCAL_BYTES": "a limit on a thread's stack",
    "compile: _LARGE_MODEL": "a policy: when memory is given back",
    "compute_at: FULL_LANES": "a limit of the primitive",
    "config: _DEFAULT_CACHE_BYTES": "the size of the object cache on disk",
    "conv: _FULL_ENOUGH": "a limit of the rule",
    "elementwise: _VECTOR_COUNTS": "what the search tries",
    "elementwise: _WRITTEN_OUT": "a limit on code size",
    "feature_indices: _DYNAMIC_EXTENT": "an assumed size",
    "fold_constants: GROWTH_BYTES": "a limit on the size of a model",
    "fold_constants: QUANTIZED_BYTES": "what folding needs for an element",
    "fold_constants: TRANSIENT_BYTES": "a limit on what a build makes",
    "layout_moves: FLATTEN_WEIGHT_BYTES": "a limit on the size of a model",
    "limits: MAX_ELEMENTS": "a limit on a model",
    "limits: MAX_MADE_BYTES": "a limit on what a build makes",
    "logfile: _LONGEST": "a limit of the log format",
    "loop_driver: _FIRST_ROWS, _FIRST_BYTES": "the first size of an array that grows",
    "non_max_suppression: _PAIRS": "a block of a host operator",
    "packing: _MAX_VECTORS": "the widest panel that is tried",
    "pages: LARGE": "a policy: which arrays are worth a page of their own",
    "peaks: _READ_BYTES": "what a measurement reads",
    "plan: _SMALL": "a policy: which constants are copied",
    "process: _TAIL_BYTES": "how much of a text is shown",
    "register_tiles: _PARTS": "how often a rule cuts",
    "resize: _WORKING_BYTES": "what making a table needs for a tap",
    "share_common: SMALL_BYTES": "a policy: which constants are compared",
    "space: MIN_LOCAL_BYTES": "a limit of the search",
    "stored: LEAST": "a policy: which tensors stay in a file",
    "thread_pool: HEAD_BYTES": "the layout of a struct",
    "thread_pool: _SLICE": "the system's time slice",
    "vectorize: MAX_LANES": "a limit of the primitive",
    "winograd: _DOUBLINGS": "what the search tries",
    "winograd: _FEWEST": "a limit of the rule",
    "wire: _VARINT, _FIXED64, _BYTES, _FIXED32": "the format of a file",
}
"""Constants by module and name that speak of bytes, vectors and so on, and are limits, policies or layouts of ours."""


def constants(path: Path) -> Iterator[tuple[str, str]]:
    """Each numeric constant of a module, and its docstring if it has one."""
    body = parsed(path).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and is_numeric(node.value):
            name = node.targets[0] if isinstance(node, ast.Assign) else node.target
            doc = after.value if isinstance(after, ast.Expr) else None
            yield ast.unparse(name).strip("()"), str(doc.value) if isinstance(doc, ast.Constant) else ""


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
        f"{path.stem}: {name}"
        for path in elsewhere()
        for name, doc in constants(path)
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
