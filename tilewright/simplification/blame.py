"""Which pass or rule made a model wrong: the graphs between passes are tried, by halves."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.bisection import longest_within
from tilewright.frontend.keep import OnnxModel
from tilewright.simplification.check import Judge
from tilewright.simplification.passes import Rewriting, Step


@dataclass(frozen=True, slots=True)
class Blame:
    """``names``: the pass, or those of its rules without which it is right; none if writing the model unchanged is
    wrong already."""

    names: tuple[str, ...]
    pass_name: str = ""

    def __str__(self) -> str:
        if not self.pass_name:
            return "reading and writing it changes it already"
        if self.names == (self.pass_name,):
            return f"the pass {self.pass_name} is to blame (--disable-pass {self.pass_name})"
        rules = " or ".join(self.names)
        return f"the rule {rules} of the pass {self.pass_name} is to blame (--disable-pass {self.names[0]})"


def find_blame(model: OnnxModel, steps: tuple[Step, ...], rewriting: Rewriting, judge: Judge) -> Blame:
    """The first step whose result ``judge`` finds wrong. ``model``: what the steps started from."""
    graphs = [model.graph, *(s.after for s in steps)]

    def is_right(n: int) -> bool:
        return judge.mismatch(model.with_graph(graphs[n])) is None

    if not is_right(0):
        return Blame(())
    step = steps[longest_within(len(steps) - 1, is_right)]
    rules = [f for f in step.fired if f in step.pass_.rules]

    def is_right_without(rule: str) -> bool:
        graph, _ = rewriting.once(step.before, (step.pass_,), without=(rule,))
        return judge.mismatch(model.with_graph(graph)) is None

    found = tuple(r for r in rules if is_right_without(r))
    return Blame(found or (step.pass_.name,), step.pass_.name)
