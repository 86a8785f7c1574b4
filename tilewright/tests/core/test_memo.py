"""Facts kept by identity: worked out once an object, never taken for another's, bounded."""

from __future__ import annotations

from tilewright.core.memo import by_identity, by_value, forgotten_after


def test_worked_out_once_for_an_object_and_again_for_an_equal_one() -> None:
    asked: list[tuple[int, ...]] = []

    @by_identity(8)
    def total(x: tuple[int, ...]) -> int:
        asked.append(x)
        return sum(x)

    one, equal = (1, 2, 3), tuple([1, 2, 3])
    assert [total(one), total(one), total(equal)] == [6, 6, 6]
    assert len(asked) == 2


def test_an_identity_that_is_used_again_is_not_mistaken() -> None:
    @by_identity(4)
    def first(x: list[int]) -> int:
        return x[0]

    assert [first([n]) for n in range(200)] == list(range(200))


def test_at_most_so_many_are_kept() -> None:
    alive: list[int] = []

    class Node:
        def __del__(self) -> None:
            alive.remove(id(self))

    @by_identity(10)
    def known(x: Node) -> bool:
        return True

    for _ in range(100):
        node = Node()
        alive.append(id(node))
        assert known(node)
    assert len(alive) <= 11


def test_values_are_remembered_by_value() -> None:
    asked: list[tuple[int, ...]] = []

    @by_value(8)
    def total(x: tuple[int, ...], more: int) -> int:
        asked.append(x)
        return sum(x) + more

    assert [total((1, 2), 3), total(tuple([1, 2]), 3), total((1, 2), 4)] == [6, 6, 7]
    assert len(asked) == 2


def test_nothing_is_kept_beyond_a_block() -> None:
    asked: list[object] = []

    @by_identity(8)
    def one(x: tuple[int, ...]) -> int:
        asked.append(x)
        return len(x)

    @by_value(8)
    def two(x: tuple[int, ...]) -> int:
        asked.append(x)
        return len(x)

    key = (1, 2)
    with forgotten_after():
        assert [one(key), two(key), one(key), two(key)] == [2] * 4
    assert len(asked) == 2
    assert [one(key), two(key)] == [2, 2]
    assert len(asked) == 4
