"""A trace: the steps of a schedule as data. It replays on a fresh function and reads back from text or JSON.

The text form is one call per line, in Python syntax; ``#`` starts a comment::

    split("i", factors=(None, 8))
    reorder(("i_0", "j", "i_1"))
"""

from __future__ import annotations

import ast
import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.errors import ParseError, ScheduleError
from tilewright.core.html.pieces import code, fragment, title
from tilewright.schedule.base import Primitive
from tilewright.schedule.memory import StepMemory
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.tensor_ir.ir import Func


@dataclass(frozen=True, slots=True)
class Trace:
    r"""A schedule as a program: its steps, in order. It is data, prints as text, and replays on the function it is for.

    ``steps``: the primitives, each with its arguments.

    >>> from tilewright import Trace
    >>> trace = Trace.from_text('split("i", factors=(None, 8))\nvectorize("i_1")')
    >>> len(trace.steps)
    2
    >>> Trace.from_json(trace.to_json()) == trace
    True
    """

    steps: tuple[Primitive, ...] = ()

    def apply(self, func: Func, memory: StepMemory | None = None) -> Func:
        """``func`` after every step; ``memory``: for replaying many traces on one function object. A ScheduleError says
        the number of the step that was refused."""
        for n, step in enumerate(self.steps, 1):
            try:
                func = step.apply(func) if memory is None else memory.apply(step, func)[0]
            except ScheduleError as e:
                raise ScheduleError(f"step {n} of {len(self.steps)}: {e}") from e
        return func

    def then(self, *steps: Primitive) -> Trace:
        """This trace with more steps."""
        return Trace((*self.steps, *steps))

    def __len__(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return fragment(title("trace", f"{len(self)} steps"), code(self.to_text()))

    def to_text(self) -> str:
        """One call a line; ``from_text(to_text())`` is the same trace."""
        return "".join(f"{step_text(s)}\n" for s in self.steps)

    @staticmethod
    def from_text(text: str) -> Trace:
        """Read the text form. Raises ParseError with the line number."""
        try:
            tree = ast.parse(text)
        except SyntaxError as e:
            raise ParseError(f"trace line {e.lineno}: {e.msg}") from e
        return Trace(tuple(_step_of_ast(node) for node in tree.body))

    def to_json(self) -> list[dict[str, object]]:
        """Plain data: ``[{"primitive": "split", "args": {"loop": "i", "factors": [None, 8]}}, ...]``."""
        return [{"primitive": s.name, "args": _arguments(s)} for s in self.steps]

    @staticmethod
    def from_json(data: object) -> Trace:
        """Read :meth:`to_json` data, or its text. Raises ParseError."""
        if isinstance(data, str):
            try:
                data = json.loads(data)
            except json.JSONDecodeError as e:
                raise ParseError(f"trace: not JSON: {e}") from e
        if not isinstance(data, list):
            raise ParseError(f"trace: expected a list of steps, got {type(data).__name__}")
        steps = []
        for n, item in enumerate(data, 1):
            match item:
                case {"primitive": str(name), "args": dict(args)}:
                    steps.append(make_step(f"trace step {n}", name, (), args))
                case _:
                    raise ParseError(f"trace step {n}: expected 'primitive' and 'args', got {item!r}")
        return Trace(tuple(steps))


def step_text(step: Primitive) -> str:
    """``split("i", factors=(None, 8))``."""
    shown = []
    for n, (name, value) in enumerate(_given(step).items()):
        text = _literal(value)
        shown.append(text if n == 0 else f"{name}={text}")
    return f"{step.name}({', '.join(shown)})"


def make_step(where: str, name: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> Primitive:
    """The primitive called ``name`` with these arguments. Raises ParseError, saying ``where``."""
    if name not in PRIMITIVES:
        raise ParseError(f"{where}: expected one of {', '.join(PRIMITIVES)}, got {name!r}")
    cls = PRIMITIVES[name]
    fields = dataclasses.fields(cls)
    given = [f.name for f in fields[: len(args)]] + list(kwargs)
    required = {f.name for f in fields if f.default is dataclasses.MISSING}
    unknown = set(given) - {f.name for f in fields}
    if len(args) > len(fields) or unknown or len(set(given)) != len(given) or required - set(given):
        wanted = ", ".join(f.name for f in fields)
        raise ParseError(f"{where}: {name} expects ({wanted}), got {len(args)} values and ({', '.join(kwargs)})")
    try:
        return cls(*args, **kwargs)
    except ScheduleError as e:
        raise ParseError(f"{where}: {e}") from e


def _arguments(step: Primitive) -> dict[str, object]:
    return {name: list(value) if isinstance(value, tuple) else value for name, value in _given(step).items()}


def _given(step: Primitive) -> dict[str, object]:
    """The fields of a step by name, without flags that are off and numbers that are what they are anyway."""
    fields = ((f, getattr(step, f.name)) for f in dataclasses.fields(step))
    return {f.name: v for f, v in fields if v is not False and not (isinstance(v, int) and v == f.default)}


def _literal(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, tuple):
        inner = ", ".join(map(_literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _step_of_ast(node: ast.stmt) -> Primitive:
    where = f"trace line {node.lineno}"
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id=name), args=args, keywords=keywords)):
            named = {k.arg or "**": k.value for k in keywords}
            try:
                values = tuple(ast.literal_eval(a) for a in args)
                return make_step(where, name, values, {k: ast.literal_eval(v) for k, v in named.items()})
            except ValueError as e:
                raise ParseError(f"{where}: expected literal arguments, got {ast.unparse(node)}") from e
    raise ParseError(f"{where}: expected a call, got {ast.unparse(node)}")
