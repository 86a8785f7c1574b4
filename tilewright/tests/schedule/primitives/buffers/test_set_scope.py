from tilewright.core.arith.expr import var
from tilewright.schedule.primitives.buffers.set_scope import SetScope
from tilewright.tests.schedule.helper import check, check_refusals, row_max
from tilewright.tests.schedule.stages import PRIVATE

F = row_max(4, 4)


def test_to_local_and_back():
    local = check(F, 'set_scope("M", scope="local")')
    assert check(local, 'set_scope("M", scope="global")') == F


def test_refusals():
    check_refusals(
        SetScope,
        {
            "the buffer is not there": (
                F,
                'set_scope("X", scope="local")',
                "set_scope(X): expected the name of a buffer of row_max, got 'X'; it has: A, B, M",
            ),
            "the scope is unknown": (
                F, 'set_scope("M", scope="shared")', "set_scope(M): expected scope global or local, got 'shared'",
            ),
            "the buffer is a parameter": (
                F, 'set_scope("A", scope="local")', "set_scope(A): expected an intermediate buffer, got a parameter",
            ),
            "to global: the allocation is not at the root": (
                PRIVATE,
                'set_scope("t", scope="global")',
                "set_scope(t): expected the allocation at the root for global scope, got one inside a loop",
            ),
            "to local: the shape is not constant": (
                row_max(var("n"), 4),
                'set_scope("M", scope="local")',
                "set_scope(M): expected a constant shape for local scope, got (n)",
            ),
            "to local: a parallel loop stands below the allocation": (
                F,
                'parallel("B_i")\nset_scope("M", scope="local")',
                "set_scope(M): the buffer would be private to one thread, but B_i below it is parallel",
            ),
        },
    )  # fmt: skip
