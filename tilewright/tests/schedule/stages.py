"""Programs of small stages on four elements, ``T`` made of ``A`` and ``B`` made of ``T``, each odd in one way."""

from __future__ import annotations

import textwrap

from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func


def stage(
    block: str, loop: str, value: str, at: str = "x", steps: int = 4, guarded: bool = False, kind: str = "range",
    buffer: str = "",
) -> str:  # fmt: skip
    """A loop around a block over one spatial axis ``x`` of extent 4."""
    lines = [f'with block("{block}", x=spatial(4, {loop})):', f"    {buffer or block}[{at}] = {value}"]
    if guarded:
        lines = [f"if less(index({loop}, int64), index(4, int64)):", *("    " + x for x in lines)]
    return "\n".join([f"for {loop} in {kind}({steps}):", *("    " + x for x in lines)])


def program(name: str, *stages: str, shared: int = 4, outputs: str = "B", size: int = 4) -> Func:
    """A function of ``A`` with a shared buffer ``T`` of ``shared`` elements, and its outputs of ``size``."""
    params = ", ".join(f"{o}: out(float32[{size}])" for o in outputs)
    body = "\n".join((f"T = shared(float32[{shared}])", *stages))
    return parse_func(f"def {name}(A: float32[4], {params}):\n{textwrap.indent(body, '    ')}\n")


T_OF_A = stage("T", "i", "A[x]")
B_OF_T = stage("B", "j", "T[x]")

OWN_PRODUCER = program("own", stage("T", "i", "select(less(index(x, int64), index(1, int64)), A[x], T[0])"), B_OF_T)
OWN_CONSUMER = program("own", T_OF_A, stage("B", "j", "select(less(index(x, int64), index(1, int64)), T[x], B[0])"))
GUARDED_PRODUCER = program("guarded", stage("T", "i", "A[x]", guarded=True), B_OF_T)
GUARDED_CONSUMER = program("guarded", T_OF_A, stage("B", "j", "T[x]", guarded=True))
STRIDED_PRODUCER = program("strided", stage("T", "i", "A[x]", at="x*2"), stage("B", "j", "T[x*2]"), shared=8)
STRIDED_CONSUMER = program("strided", T_OF_A, stage("B", "j", "T[x]", at="x*2"), size=8)
PARTIAL_CONSUMER = program("partial", T_OF_A, stage("B", "j", "T[x]", steps=3))
VECTORIZED_CONSUMER = program("vector", T_OF_A, stage("B", "j", "T[x]", kind="vectorized"))
STORING_CONSUMER = program("stored", T_OF_A, "for j in range(4):\n    B[j] = T[j]")
UNREAD = program("unread", T_OF_A, stage("B", "j", "A[x]"))
OTHER_READER = program("outside", T_OF_A, B_OF_T, stage("C", "k", "T[x]"), outputs="BC")
INPUT_WRITTEN_AGAIN = program(
    "again",
    stage("C", "h", "A[x]"),
    stage("T", "i", "C[x]"),
    stage("C2", "k", "add(A[x], A[x])", buffer="C"),
    B_OF_T,
    outputs="BC",
)
LOCAL_INPUT = program(
    "local_input",
    "with local(float32[4]) as t:",
    textwrap.indent(f"{stage('t', 'h', 'A[x]')}\n{stage('T', 'i', 't[x]')}", "    "),
    B_OF_T,
)
SCOPED_INPUT = program(
    "scoped",
    stage("T", "h", "A[x]"),
    "for j in range(4):\n    t = local(float32[4])",
    textwrap.indent(f'{stage("t", "i", "T[x]")}\nwith block("B", x=spatial(4, j)):\n    B[x] = t[x]', "    "),
)
REVERSED = program(
    "back", stage("B", "j", "select(less(index(x, int64), index(0, int64)), T[x], A[x])"), stage("T", "i", "A[x]")
)
READ_BETWEEN = program(
    "between",
    stage("T", "h", "A[x]"),
    stage("C", "i", "select(less(index(x, int64), index(0, int64)), B[x], A[x])"),
    B_OF_T,
    outputs="BC",
)
PRIVATE = parse_func("""
def private(A: float32[8], B: out(float32[8])):
    for j in range(8):
        t = local(float32[1])
        with block("T", z=spatial(1, 0), x=spatial(8, j)):
            t[z] = A[x]
        with block("B", x=spatial(8, j)):
            B[x] = t[0]
""")
