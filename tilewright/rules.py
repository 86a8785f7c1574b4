"""Rewrite rules of your own: the vocabulary of patterns, and how rules are run (docs/rules.md).

>>> from tilewright.rules import C, P, Rule
>>> twice = Rule("twice", "x * 1 --> x", P("Mul", "x", C("one", 1.0)), lambda m: m["x"])
"""

from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, Build, C, Either, Guard, Match, Operand, P, Past, Rule
from tilewright.graph_ir.rules.users import apply_rules

__all__ = [
    "NOT_HERE", "Build", "C", "Either", "Exactness", "Guard", "Match", "Operand", "P", "Past", "Rule", "apply_rules",
]  # fmt: skip
