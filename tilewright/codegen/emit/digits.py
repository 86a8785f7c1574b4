"""Quotients and remainders of a loop's variable that are carried from step to step.

A loop over several fused ones finds their variables by dividing its own: by sizes that may not be known before the
kernel runs, and a division takes as long as a dozen vector operations. But the variable grows by one a step, so the
remainder does too until it reaches the divisor, when it starts again and the quotient grows by one: two additions, a
comparison and a choice. The quotient in turn may be divided, as the digits of a number are counted up.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.llvm.builder import BasicBlock, Code


@dataclass(frozen=True, slots=True)
class CountedLoop:
    """Where values that a loop carries are written: in the block before it, at its head, and at the end of a step.

    ``level``: that of the values at its head.
    """

    before: BasicBlock
    head: BasicBlock
    latch: BasicBlock
    level: int


@dataclass(frozen=True, slots=True)
class Counter:
    """A value at the head of a loop that is ``start`` in its first step and then grows by ``step``, 0 or 1, a step."""

    loop: CountedLoop
    value: str
    start: str
    step: str


@dataclass(frozen=True, slots=True)
class Digit:
    """A counter divided by a number: how often it went round, and where it is."""

    quotient: Counter
    remainder: str


class Digits:
    """The counters of one function, by their values."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._counters: dict[str, Counter] = {}
        self._digits: dict[tuple[str, str], Digit] = {}

    def add_loop(self, loop: CountedLoop, variable: str, start: str) -> None:
        """Register the variable of a loop that counts by one."""
        self._counters[variable] = Counter(loop, variable, start, "1")

    def counter(self, value: str) -> Counter | None:
        """The counter whose value is the operand ``value``, if it is one."""
        return self._counters.get(value)

    def divide(self, counter: Counter, divisor: str) -> Digit:
        """A counter that is never negative by a divisor that is at least 1 and known before the loop."""
        key = counter.value, divisor
        if key not in self._digits:
            self._digits[key] = self._new(counter, divisor)
        return self._digits[key]

    def _new(self, counter: Counter, divisor: str) -> Digit:
        loop, code = counter.loop, self._code

        def write(block: BasicBlock, text: str) -> str:
            name = code.name()
            block.lines.append(f"  {name} = {text}")
            return name

        first = [write(loop.before, f"{op} i64 {counter.start}, {divisor}") for op in ("udiv", "urem")]
        quotient, remainder, next_quotient, next_remainder = (code.name() for _ in range(4))
        pairs = (quotient, first[0], next_quotient), (remainder, first[1], next_remainder)
        for value, start, following in pairs:
            phi = f"phi i64 [ {start}, %{loop.before.label} ], [ {following}, %{loop.latch.label} ]"
            loop.head.lines.insert(0, f"  {value} = {phi}")
        grown = write(loop.latch, f"add nuw nsw i64 {remainder}, {counter.step}")
        round_again = write(loop.latch, f"icmp eq i64 {grown}, {divisor}")
        step = write(loop.latch, f"zext i1 {round_again} to i64")
        loop.latch.lines.append(f"  {next_remainder} = select i1 {round_again}, i64 0, i64 {grown}")
        loop.latch.lines.append(f"  {next_quotient} = add nuw nsw i64 {quotient}, {step}")
        counted = Counter(loop, quotient, first[0], step)
        self._counters[quotient] = counted
        return Digit(counted, remainder)
