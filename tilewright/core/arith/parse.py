"""The text form of integer expressions, read back. The grammar is in :mod:`tilewright.core.arith.expr`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from tilewright.core.arith.broadcast import broadcasted
from tilewright.core.arith.expr import IntExpr, const, var
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.errors import ParseError

_FUNCTIONS: Mapping[str, Callable[..., IntExpr]] = {"min": minimum, "max": maximum, "broadcast": broadcasted}


def parse(text: str, names: Mapping[str, IntExpr] | None = None) -> IntExpr:
    """Read the text form back: ``parse(str(e)) == e``. ``names``: what stands for more than a variable. Raises
    ParseError."""
    try:
        read = from_ast(ast.parse(text, mode="eval").body)
    except SyntaxError as e:
        raise ParseError(f"integer expression {text!r} does not parse: {e.msg}") from e
    return read.substitute(names) if names else read


def from_ast(node: ast.expr, read_other: Callable[[ast.expr], IntExpr] | None = None) -> IntExpr:
    """The expression of a Python syntax tree in that grammar. Raises ParseError.

    ``read_other`` reads what the grammar leaves to other rooms: atoms that are neither names nor operations.
    """
    match node:
        case ast.Constant(value=int(n)) if not isinstance(n, bool):
            return const(n)
        case ast.Name(id=name):
            return var(name)
        case ast.UnaryOp(op=ast.USub(), operand=x):
            return -from_ast(x, read_other)
        case ast.BinOp(left=a, op=op, right=b):
            left, right = from_ast(a, read_other), from_ast(b, read_other)
            match op:
                case ast.Add():
                    return left + right
                case ast.Sub():
                    return left - right
                case ast.Mult():
                    return left * right
                case ast.FloorDiv() if right != 0:
                    return left // right
                case ast.Mod() if right != 0:
                    return left % right
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as args) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(from_ast(a, read_other) for a in args))
    if read_other is not None:
        return read_other(node)
    raise ParseError(f"not an integer expression: {ast.unparse(node)}")
