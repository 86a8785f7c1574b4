import dataclasses

import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntLike, const, var
from tilewright.schedule.primitives.loops.tensorize import Tensorize
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.analysis import scopes
from tilewright.tensor_ir.analysis.intrinsic_match import Match, match_intrinsic
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tensor_ir.intrinsics import TENSOR_INTRINSICS, malformed, with_intrinsics
from tilewright.tensor_ir.ir import Func, TensorIntrin
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.schedule.helper import check, check_refusals, elementwise, f32, matmul
from tilewright.tests.schedule.intrinsics import SMALL

N, M = var("n"), var("m")


def transposed(n: IntLike, m: IntLike) -> Func:
    """B[i, j] = A[j, i]"""
    a = placeholder("A", (m, n), f32)
    return build_func("transposed", [a], [compute("B", (n, m), lambda i, j: a[j, i])])


def small(func: Func) -> Func:
    return with_intrinsics(func, *SMALL)


SQUARES = """
split("B_i", factors=(None, 8))
split("B_j", factors=(None, 8))
reorder(("B_i_0", "B_j_0", "B_i_1", "B_j_1"))
"""


def test_squares_of_a_transpose_and_a_tail():
    check(
        transposed(16, N),
        SQUARES + 'peel("B_j_0")\ntensorize("B_i_1", intrinsic="transpose_8x8_f32")\nparallel("B_i_0")',
        """
        for B_i_0 in parallel(2):
            for B_j_0 in range((n//8)):
                for B_i_1 in opaque(8, intrinsic="transpose_8x8_f32"):
                    for B_j_1 in range(8):
                        with block("B", B_i_=spatial(16, B_i_0*8 + B_i_1), B_j_=spatial(n, B_j_0*8 + B_j_1)):
                            B[B_i_, B_j_] = A[B_j_, B_i_]
            for B_j_0_t in range(((n + 7)//8) - (n//8)):
                for B_i_1_t in range(8):
                    for B_j_1_t in range((n % 8)):
                        with block("B_t", B_i_=spatial(16, B_i_0*8 + B_i_1_t), B_j_=spatial(n, B_j_1_t + (n//8)*8)):
                            B[B_i_, B_j_] = A[B_j_, B_i_]
        """,
    )


def test_a_unit_is_tensorized():
    check(transposed(8, 8), 'blockize("B_i")\ntensorize("B_i", intrinsic="transpose_8x8_f32")')


def test_a_step_of_a_matrix_product():
    check(
        matmul(6, 32, N),
        """
        split("C_j", factors=(None, 16))
        reorder(("C_j_0", "k", "C_i", "C_j_1"))
        decompose_reduction("C", loop="k")
        tensorize("C_i", intrinsic="outer_6x16_f32")
        """,
    )


def test_factors_are_found_in_either_order():
    a = parse_func("""
def f(A: float32[2, 4], B: float32[2], C: out(float32[2, 4])):
    for i in range(2):
        for j in range(4):
            C[i, j] = float32(1.0)
    for h in range(2):
        for k in range(2):
            C[k, h] = add(mul(B[h], A[k, h]), C[k, h])
""")
    check(small(a), 'tensorize("k", intrinsic="outer_2x1")')


def test_steps_over_the_end_of_a_tap_go_in_a_straight_line():
    """``(t*12 + k) // 24`` is ``t // 2``, but with what is left it is a whole only as it was written."""
    f = parse_func("""
def f(T: int32[3, 3, 8, 16, 16], B: int32[1152, 16], C: out(float32[16, 16])):
    for t in range(6):
        for i in range(16):
            for j in range(16):
                for k in range(12):
                    for q in range(16):
                        with block("C", m=spatial(16, i), n=spatial(16, j), s=reduce(72, t*12 + k), p=reduce(16, q)):
                            init(float32(0.0))
                            C[m, n] = add(C[m, n], dot2(T[(s//24), (s//8) % 3, s % 8, m, p], B[p + s*16, n]))
""")
    s = Schedule(f)
    s.tensorize("i", "tiles_dot2_1x1")
    assert "opaque" in str(s.func)


def test_an_own_intrinsic_travels_with_the_function():
    f = small(elementwise(8, 4))
    assert parse_func(str(f)) == f
    s = Schedule(f)
    s.tensorize("B_j", "double_4")
    assert Trace.from_text(s.trace.to_text()).apply(parse_func(str(f))) == s.func
    check(f, s.trace.to_text())


@pytest.mark.parametrize("name", TENSOR_INTRINSICS)
def test_built_in_descriptions_are_well_formed(name):
    assert TENSOR_INTRINSICS[name].name == name
    assert malformed(TENSOR_INTRINSICS[name]) is None


_FOUR = "def f(A: out({})):\n    for i in range(4):\n        {}"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "def f(n: dim, A: out(int8[4])):\n    for i in range(4):\n        A[i] = A[i]",
            "dim n is the extent of no loop",
        ),
        (
            "def f(n: dim, A: out(int8[n])):\n    for i in range(n + 1):\n        A[i] = A[i]",
            "loop i has the extent n + 1",
        ),
        ("def f(A: out(float32[4])):\n    A[0] = A[0]", "a description is one loop nest"),
        (_FOUR.format("float32[()]", "A[()] = A[()]"), "at least one dimension"),
        (_FOUR.format("bool[4]", "if A[0]:\n            A[i] = A[i]"), "it holds a guard"),
        (_FOUR.format("int64[4]", "A[i] = index(i, int64)"), "used as a value"),
        (_FOUR.format("float32[5]", "A[i + 1] = A[i]"), "neither 0 nor a loop"),
        (_FOUR.format("float32[5]", "A[i] = A[i]"), "does not run over"),
        ("def f(B: float32[4], A: out(float32[4])):\n    for i in range(4):\n        A[i] = A[i]", "B is not used"),
        (
            _FOUR.format(
                "float32[4]",
                'with block("A", a=reduce(4, i)):\n            init(float32(0.0))\n            A[a] = add(A[a], A[a])',
            ),
            "block A stores an initial value",
        ),
    ],
)
def test_malformed_descriptions(text, reason):
    assert reason in (malformed(TensorIntrin(parse_func(text))) or "")


def test_a_dense_parameter_is_one_of_its_own():
    known = dataclasses.replace(SMALL[0], dense=("X",))
    assert malformed(known) == "dense parameter X is none of its own"


def _body(text: str, params: str = "A: float32[8, 8], C: out(float32[8, 8])") -> Func:
    lines = "\n".join("    " + line for line in text.strip("\n").split("\n"))
    return small(parse_func(f"def f({params}):\n{lines}"))


DOT = _body(
    """
for i in range(8):
    for k in range(4):
        C[i] = add(C[i], mul(cast(A[k], int32), cast(B[i, k], int32)))
""",
    "A: uint8[4], B: int8[8, 5], C: out(int32[8])",
)


def _product(initial: str, outer: str = "range(1)") -> Func:
    """A product for matrix tiles, the steps of which are done in several blocks of 3."""
    return parse_func(f"""
def f(A: int32[6, 16, 16], B: int32[6, 16, 16], C: out(float32[16, 16])):
    for o in {outer}:
        for i in range(16):
            for j in range(16):
                for k in range(3):
                    for q in range(16):
                        with block("C", m=spatial(16, i), n=spatial(16, j), s=reduce(6, o * 3 + k), p=reduce(16, q)):
                            init({initial})
                            C[m, n] = add(C[m, n], dot2(A[s, m, p], B[s, p, n]))
""")


_F = "tensorize(i): the loop is not {}: "
TILES = _F.format("tiles_dot2_1x1")
DOUBLE, OUTER, TURN = _F.format("double_4"), _F.format("outer_2x1"), _F.format("transpose_8x8_f32")


def test_a_few_steps_of_a_sum_that_the_intrinsic_resumes():
    """Its code starts from the initial value where ``o`` is 0."""
    s = Schedule(_product("float32(0.0)", "range(2)"))
    s.tensorize("i", "tiles_dot2_1x1")
    verify(s.func)
    nest = scopes.find_loop(s.func, "i")
    found = match_intrinsic(s.func, nest, TENSOR_INTRINSICS["tiles_dot2_1x1"], {"o": (const(0), const(1))})
    assert isinstance(found, Match)
    assert found.before == (var("o") * 3,)


def test_refusals():
    f = transposed(8, 8)
    at_once = dataclasses.replace(TENSOR_INTRINSICS["tiles_dot2_1x1"], resumes=False)
    bad = TensorIntrin(parse_func("def bad(A: out(float32[4])):\n    A[0] = A[0]"))
    turn, double, outer = (f'tensorize("i", intrinsic="{x}")' for x in ("transpose_8x8_f32", "double_4", "outer_2x1"))
    known = ", ".join(sorted({*TENSOR_INTRINSICS, "copy_2", "dot_2", "double_4", "outer_2x1"}))
    tiles = 'tensorize("i", intrinsic="tiles_dot2_1x1")'
    twice = 'tensorize("B_i", intrinsic="transpose_8x8_f32")'
    check_refusals(
        Tensorize,
        {
            "the loop is not there": (
                f,
                'tensorize("x", intrinsic="transpose_8x8_f32")',
                "tensorize(x): expected the name of a loop of transposed, got 'x'; it has: B_i, B_j",
            ),
            "the loop is part of an opaque loop": (
                f,
                'blockize("B_i")\ntensorize("B_j", intrinsic="transpose_8x8_f32")',
                "tensorize(B_j): loop B_j is part of the opaque loop B_i",
            ),
            "an intrinsic runs the loop already": (
                f, f"{twice}\n{twice}", "tensorize(B_i): transpose_8x8_f32 runs the loop already",
            ),
            "there is no such intrinsic": (
                _body("for i in range(8):\n    C[i, 0] = A[i, 0]"),
                'tensorize("i", intrinsic="none")',
                f"tensorize(i): expected an intrinsic of f, got 'none'; there are: {known}",
            ),
            "the intrinsic's description is not one nest": (
                with_intrinsics(f, bad),
                'tensorize("B_i", intrinsic="bad")',
                "tensorize(B_i): the loop is not bad: bad is not well described: a description is one loop nest",
            ),
            "a loop around it is vectorized": (
                small(elementwise(8, 4)),
                'vectorize("B_i")\ntensorize("B_j", intrinsic="double_4")',
                "tensorize(B_j): loop B_i outside is vectorized",
            ),
            "a loop of the nest is neither serial nor the opaque one": (
                f, f'unroll("B_j")\n{twice}', "tensorize(B_i): the loop is not transpose_8x8_f32: loop B_j is unrolled",
            ),
            "a loop has not the extent of the description's": (
                transposed(8, 9),
                twice,
                "tensorize(B_i): the loop is not transpose_8x8_f32: loop B_j has the extent 9, not 8",
            ),
            "the statements are not those of the description": (
                _body("for i in range(8):\n    C[i, 0] = A[i, 0]\n    C[i, 1] = A[i, 0]"),
                turn,
                TURN + "it has a seq where transpose_8x8_f32 has a loop",
            ),
            "a reduction stores its initial values in the nest": (
                small(matmul(3, 3, 2)),
                'tensorize("k", intrinsic="dot_2")',
                "tensorize(k): the loop is not dot_2: block C stores initial values "
                "(decompose_reduction takes them out)",
            ),
            "a reduction stores other initial values than that of the description": (
                _product("float32(1.0)"), tiles, TILES + "block C does not store the initial values of tiles_dot2_1x1",
            ),
            "a reduction with initial values is not over the loops of the description's": (
                with_intrinsics(_product("float32(0.0)", "range(2)"), at_once),
                tiles,
                TILES + "block C does not reduce over the loops over which tiles_dot2_1x1 does",
            ),
            "an operation is not that of the description": (
                _body("for i in range(4):\n    C[0, i] = mul(A[0, i], A[0, i])"),
                double,
                DOUBLE + "it computes mul in float32 where double_4 computes add in float32",
            ),
            "a buffer holds another element type": (
                _body("for i in range(4):\n    C[i] = add(A[i], A[i])", "A: float64[4], C: out(float64[4])"),
                double,
                DOUBLE + "C holds float64, not float32",
            ),
            "an index is read from memory": (
                _body(
                    "for i in range(4):\n    C[i] = add(A[X[0]], A[i])",
                    "A: float32[4], X: int64[1], C: out(float32[4])",
                ),
                double,
                DOUBLE + "the place of A[X[0]] is read from memory",
            ),
            "an access does not go in straight lines": (
                _body("for i in range(4):\n    C[0, i] = add(A[0, i // 2], A[0, i // 2])"),
                double,
                DOUBLE + "A[0, (i//2)] does not go in a straight line with loop i",
            ),
            "an access moves with a loop where the description's does not": (
                _body("for i in range(2):\n    C[i, 0] = add(C[i, 0], mul(A[i, 0], A[i, 1]))"),
                outer,
                OUTER + "A[i, 1] moves with loop i, B does not",
            ),
            "two accesses that are one in the description are not": (
                _body("for i in range(4):\n    C[0, i] = add(A[0, i], A[1, i])"),
                double,
                DOUBLE + "A[1, i] is not where A was seen before",
            ),
            "the last dimension of a parameter is not made of neighbours": (
                _body("for i in range(4):\n    C[i, 0] = add(A[0, i], A[0, i])"),
                double,
                DOUBLE + "the last dimension of B is not made of neighbours in C",
            ),
            "elements that are written may be the same": (
                _body("for i in range(8):\n    for j in range(8):\n        C[0, i // 8 + j] = A[j, i]"),
                turn,
                TURN + "steps of loop i may write one element of C",
            ),
            "a dense parameter has gaps": (
                DOT,
                'tensorize("i", intrinsic="dot_8x4_u8s8s32")',
                "tensorize(i): the loop is not dot_8x4_u8s8s32: B does not lie in B without gaps",
            ),
            "a parameter that is written shares memory with another": (
                _body("for i in range(4):\n    C[0, i] = add(C[0, i], C[0, i])"),
                double,
                DOUBLE + "B and A share memory: C and C",
            ),
        },
    )  # fmt: skip


def test_types_of_a_dot_product_must_be_those_of_the_description():
    swapped = parse_func(str(DOT).replace("uint8[4]", "int8[4]").replace("5]", "4]"))
    with pytest.raises(Exception, match="A holds int8, not uint8"):
        Tensorize("i", "dot_8x4_u8s8s32").apply(swapped)
    assert dtypes.int8 == swapped.params[0].dtype
