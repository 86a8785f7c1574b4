"""A plan as C: what the executor interprets in Python, written out, with tables for what is the same in every run.

A plan becomes a ``tw_plan`` (``native/internal.h``): ``run`` binds the symbols, lays out memory when they have changed,
and calls one entry function per segment; ``layout`` is what depends on the sizes of the inputs alone; ``shapes`` gives
those of outputs without a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.core.arith.expr import IntExpr, as_var
from tilewright.core.assumptions import Assumption, Ones
from tilewright.core.dtypes import uint8
from tilewright.core.errors import InternalError
from tilewright.core.io.stored import loaded
from tilewright.core.plan import (
    Binding,
    CheckStep,
    ControlStep,
    HostStep,
    KernelStep,
    NativeStep,
    Plan,
    Requirement,
    Segment,
    segments,
    step_slots,
)
from tilewright.deploy.source.c_text import quoted, table
from tilewright.deploy.source.constants import Constants
from tilewright.deploy.source.formulas import Code, literal
from tilewright.deploy.source.host_calls import host_call
from tilewright.deploy.source.numbering import Numbering, number
from tilewright.runtime.resources.arena import conflicts, lifetimes, nbytes, place

_ONES = {Ones.NEITHER: "=", Ones.RIGHT: "<", Ones.EITHER: "?", Ones.APART: "!"}
_CAST = "(int64_t)((uint64_t)tw_element({}, 0) + (uint64_t){})"


@dataclass(slots=True)
class Program:
    """What the plans of one artifact share. ``entries``: symbols by where the segment is; ``outputs``: the model's
    names of outputs that have another as a slot; ``parts``: the C text; ``arena_bytes``: what intermediate values
    need where all sizes are fixed."""

    constants: Constants
    entries: Mapping[str, str]
    outputs: Mapping[str, str]
    parts: list[str] = field(default_factory=list)
    plans: int = 0
    arena_bytes: int = 0


def write_plan(program: Program, plan: Plan, path: str, around: Sequence[Numbering] = ()) -> str:
    """Append the C of a plan and of its bodies to ``program``; the name of its ``tw_plan``. ``path``: as entries name
    it; ``around``: the plans that it is a body in, the nearest first."""
    return _Writer(program, plan, path, around).write()


class _Writer:
    def __init__(self, program: Program, plan: Plan, path: str, around: Sequence[Numbering]) -> None:
        self.program, self.plan, self.path, self.around = program, plan, path, around
        self.numbers = number(plan, around)
        self.name = f"p{program.plans}"
        program.plans += 1
        self.symbols = {s: f"s[{k}]" for s, k in self.numbers.symbols.items()}
        self.given = self.numbers.symbols_before(self.numbers.given)
        self.early = self.numbers.symbols_before(self.numbers.early)
        self.known = self.early
        self.tables: list[str] = []
        self.places: list[str] = []
        self.patches: list[str] = []
        self.stamps: list[str] = []
        self.assumptions: list[str] = []
        self.bodies: list[str] = []
        self.inside: list[IntExpr] = []
        self.moving: list[tuple[int, str, IntExpr]] = []
        self.dims: list[tuple[int, IntExpr]] = []
        self.place_count = self.dim_count = self.arena_bytes = 0
        self.begun: set[str] = set()

    def write(self) -> str:
        run = self._run()  # first: it finds out what the layout and the tables have to hold
        layout, shapes = self._layout(), self._shapes()
        n, plan, p = self.numbers, self.plan, self.name
        tables = {
            "tw_place": ("places", self.places), "tw_patch": ("patches", self.patches),
            "tw_assumption": ("assumptions", self.assumptions), "char *const": ("stamps", self.stamps),
            "int32_t": ("results", n.results), "tw_plan *const": ("bodies", [f"&{b}" for b in self.bodies]),
        }  # fmt: skip
        for kind, (name, items) in tables.items():
            self._table(kind, name, items)
        self._table("tw_slot_spec", "inputs", [self._spec(i) for i in plan.inputs])
        self._table("tw_slot_spec", "outputs", [self._spec(o) for o in plan.outputs])
        fields = {
            "name": quoted(plan.name), "input_count": len(plan.inputs), "capture_count": len(plan.captures),
            "output_count": len(plan.outputs), "value_count": max((*n.results, *n.values.values(), -1)) + 1,
            "symbol_count": len(n.symbols), "early_count": n.early, "arena_count": len(n.arena),
            "place_count": self.place_count, "dim_count": self.dim_count, "inside_count": len(self.inside),
            "body_count": len(self.bodies), "stamp_count": len(self.stamps), "inputs": f"{p}_inputs",
            "outputs": f"{p}_outputs", "output_values": f"{p}_results", "bodies": f"{p}_bodies",
            "stamps": f"{p}_stamps", "broadcasts": int(plan.broadcasts),
            "arena_bytes": literal(self.arena_bytes), "run": f"{p}_run", "shapes": f"{p}_shapes",
        }  # fmt: skip
        if not self.around:
            self.program.arena_bytes = self.arena_bytes
        body = "\n".join(f"  .{k} = {v}," for k, v in fields.items())
        self.program.parts += [*self.tables, layout, run, shapes, f"static const tw_plan {p} = {{\n{body}\n}};"]
        return p

    def _table(self, kind: str, name: str, items: Sequence[object]) -> None:
        gap = "" if kind.endswith("const") else " "
        self.tables.append(table(f"{kind}{gap or ' '}{self.name}_{name}", items))

    def _spec(self, name: str) -> str:
        slot = self.plan.slots[name]
        shown = quoted(self.program.outputs.get(name, name))
        if slot.shape is None:
            return f"{{{shown}, {slot.dtype.onnx}, -1, NULL, NULL}}"
        sizes = ", ".join(str(-1 if d.value() is None else d.value()) for d in slot.shape) or "0"
        dims = ", ".join("NULL" if d.is_const else quoted(str(d)) for d in slot.shape) or "NULL"
        arrays = f"(const int64_t[]){{{sizes}}}, (const char *const[]){{{dims}}}"
        return f"{{{shown}, {slot.dtype.onnx}, {len(slot.shape)}, {arrays}}}"

    def _code(self) -> Code:
        code = Code(self.symbols)
        code.add("int64_t *const s = f->symbols;", "tw_value *const v = f->values;", "(void)s, (void)v;")
        return code

    # -- a run -----------------------------------------------------------------------------------------------------
    def _run(self) -> str:
        n, c = self.numbers, self._code()
        self._bind_outer(c)
        for b in n.early_bindings:
            c.add(f"{self.symbols[b.symbol]} = {self._bound(b, c)};")
        self._agreement(c)
        c.add(f"if (tw_moved(f)) TRY({self.name}_layout(f));")
        self._compare([a for a in n.around_assumptions if a.symbols() <= self.known], c)
        for w in segments(self.plan):
            if isinstance(w, Segment):
                self._segment(w, c)
                steps = range(w.start, w.stop)
            elif w not in n.once:
                self._begin(step_slots(self.plan.steps[w])[1], c)
                with c.block():
                    self._host_or_control(w, c)
                steps = range(w, w + 1)
            else:
                continue
            for i in steps:
                self._bind_late(n.late.get(i, ()), c)
        self._begin(self.plan.outputs, c)
        for k, name in enumerate(self.plan.outputs):
            if n.values.get(name) != n.results[k]:
                c.add(f"TRY(tw_deliver(f, {k}, {n.results[k]}, {self._value(name, c)}));")
        c.add("return TW_OK;")
        return c.function(f"static tw_status {self.name}_run(tw_frame *f)")

    def _bind_outer(self, c: Code) -> None:
        for symbol, (out, k) in self.numbers.outer.items():
            c.add(f"{self.symbols[symbol]} = f->around{'->around' * out}->symbols[{k}];")

    def _bound(self, b: Binding, c: Code) -> str:
        """The value of a symbol, where it is read."""
        content = self.plan.constants.get(b.slot)
        if content is not None:
            array = np.asarray(loaded(content))
            return literal(array.shape[b.axis] if b.axis is not None else int(array.reshape(-1)[b.element or 0]))
        value = self._value(b.slot, c)
        return f"({value})->shape[{b.axis}]" if b.axis is not None else f"tw_element({value}, {b.element or 0})"

    def _bind_late(self, bindings: Sequence[Binding], c: Code) -> None:
        if not bindings:
            return
        for b in bindings:
            c.add(f"{self.symbols[b.symbol]} = {self._bound(b, c)};")
        before, self.known = self.known, self.known | {b.symbol for b in bindings}
        for assumptions in (self.numbers.assumptions, self.numbers.around_assumptions):
            self._compare([a for a in assumptions if _decided(a.symbols(), before, self.known)], c)
        for r in self.plan.requirements:
            if _decided(r.free_vars(), before, self.known):
                self._require(r, c)

    def _agreement(self, c: Code) -> None:
        """Sizes of the model's inputs that follow from those of others."""
        found: dict[str, str] = {}
        checks: list[tuple[int, str, int, IntExpr]] = []
        for k, name in enumerate(self.plan.inputs if not self.around else ()):
            for axis, d in enumerate(self.plan.slots[name].shape or ()):
                symbol = as_var(d)
                if symbol is not None and symbol not in found:
                    found[symbol] = f"v[{k}].shape[{axis}]"
                elif not d.is_const:
                    checks.append((k, name, axis, d))
        own = Code(found)
        for k, name, axis, d in checks:
            if d.free_vars() <= found.keys():
                where = f"{quoted(name)}, {axis}, {quoted(str(d))}"
                own.add(f"TRY(tw_require_size({where}, {own.of(d)}, v[{k}].shape[{axis}]));")
        for r in self.plan.limits if not self.around else ():
            if r.free_vars() <= found.keys():
                self._require(r, own)
        if own.lines:
            c.embed(own)

    def _begin(self, names: Sequence[str], c: Code) -> None:
        """Memory for those of some slots that are outputs, or temporaries outside the arena, and have sizes by now."""
        for name in dict.fromkeys(names):
            slot = self.plan.slots[name]
            shape = slot.shape
            if name in self.begun or slot.kind not in ("output", "temp") or name not in self.numbers.values:
                continue
            if slot.alias is not None or shape is None or not all(d.free_vars() <= self.known for d in shape):
                continue
            self.begun.add(name)
            what = f"{self.numbers.values[name]}, {slot.dtype.onnx}"
            sizes = f"{len(shape)}, {c.sizes(shape)}"
            if name in self.plan.outputs:
                c.add(f"TRY(tw_begin_output(f, {self.plan.outputs.index(name)}, {what}, {sizes}));")
            else:
                c.add(f"TRY(tw_own(f, {what}, {quoted(name)}, {sizes}));")

    def _segment(self, w: Segment, c: Code) -> None:
        n, plan = self.numbers, self.plan
        steps = [s for s in plan.steps[w.start : w.stop] if isinstance(s, NativeStep)]
        self._begin([n.roots[a] for s in steps for a in step_slots(s)[0]], c)
        first_place, first_dim, first_stamp = self.place_count, self.dim_count, len(self.stamps)
        first_patch = len(self.patches)
        self.stamps.append("NULL")
        has_late = False
        for step in steps:
            offsets = dict(step.offsets) if isinstance(step, KernelStep) else {}
            for k, name in enumerate(step_slots(step)[0]):
                self._argument(n.roots[name], offsets.get(k), c)
            for d in step.dims:
                if d.free_vars() <= self.early:
                    self.dims.append((self.dim_count, d))
                else:
                    c.add(f"f->dims[{self.dim_count}] = {c.of(d)};")
                    has_late = True
                self.dim_count += 1
            self.stamps.append(quoted(step.kernel if isinstance(step, KernelStep) else f"check {step.where}"))
        if has_late:
            c.add(f"TRY(tw_check_dims(f->dims + {first_dim}, {self.dim_count - first_dim}, {quoted(plan.name)}));")
        if patches := len(self.patches) - first_patch:
            c.add(f"tw_patch_values(f, {self.name}_patches + {first_patch}, {patches});")
        entry = self.program.entries[f"{self.path}.{w.start}"]
        parallel = int(any(isinstance(s, KernelStep) and s.parallel for s in steps))
        call = f"tw_enter(f, {entry}, {first_place}, {first_dim}, {first_stamp}, {parallel})"
        checks = [(k + 1, s) for k, s in enumerate(steps) if isinstance(s, CheckStep)]
        if not checks:
            c.add(f"(void){call};")
            return
        with c.block():
            c.add(f"const int64_t stopped = {call};")
            for k, s in checks:
                with c.block(f"if (stopped == {k})"):
                    low, high, worst = c.of(s.low), c.of(s.high), self._value(s.worst, c)
                    what = f"{quoted(s.where)}, {quoted(s.what)}, {low}, {high}, {_CAST.format(worst, low)}"
                    c.add(f"return tw_out_of_range({what}, 0);")

    def _argument(self, root: str, offset: IntExpr | None, c: Code) -> None:
        """Enter an argument of a native step in the tables."""
        n, at = self.numbers, self.place_count
        self.place_count += 1
        fixed = 0 if offset is None else offset.value()
        if root in self.plan.constants:
            if fixed is None:
                raise InternalError(f"slot {root!r}: a constant is read from a place that moves")
            start = self.program.constants.place(root, self.plan.constants[root])
            self.places.append(f"{{{at}, TW_CONSTANT, {start + fixed}}}")
        elif root in n.arena:
            where = f"f->arena + f->offsets[{n.arena[root]}]"
            if fixed is not None or offset is None:
                self.places.append(f"{{{at}, {n.arena[root]}, {fixed}}}")
            elif offset.free_vars() <= self.early:
                self.moving.append((at, where, offset))
            else:
                c.add(f"f->table[{at}] = {where} + {c.of(offset)};")
        elif fixed == 0 or offset is None:
            self.patches.append(f"{{{at}, {n.values[root]}, -1}}")
        else:
            if not offset.free_vars() <= self.early:
                c.add(f"f->inside[{len(self.inside)}] = {c.of(offset)};")
            self.patches.append(f"{{{at}, {n.values[root]}, {len(self.inside)}}}")
            self.inside.append(offset)

    def _host_or_control(self, i: int, c: Code) -> None:
        step = self.plan.steps[i]
        if isinstance(step, HostStep):
            inputs = [self._value(name, c) if name else "NULL" for name in step.inputs]
            host_call(step, self.plan, inputs, self._targets(step.outputs), c)
        elif isinstance(step, ControlStep):
            self._control(step, i, c)
        else:
            raise InternalError(f"step {i} is a kernel outside a segment")

    def _targets(self, names: Sequence[str]) -> list[str]:
        return [f"&v[{self.numbers.values[self.numbers.roots[o]]}]" if o else "NULL" for o in names]

    def _control(self, step: ControlStep, i: int, c: Code) -> None:
        fields: dict[str, object] = {"node": quoted(step.node), "first_body": len(self.bodies)}
        around = (self.numbers, *self.around)
        self.bodies += [write_plan(self.program, b, f"{self.path}.{i}.{k}", around) for k, b in enumerate(step.bodies)]
        inputs = [self._value(name, c) if name else "NULL" for name in step.inputs]
        captures = [[self._value(name, c) for name in body.captures] for body in step.bodies]
        fields |= {"inputs": c.array("const tw_value *const", inputs), "input_count": len(step.inputs)}
        fields |= {
            "outputs": c.array("tw_value *const", self._targets(step.outputs)),
            "output_count": len(step.outputs),
        }
        arrays = [c.array("const tw_value *const", names) for names in captures]
        fields["captures"] = "{" + ", ".join(arrays) + "}"
        if step.op != "If":
            fields |= _stacked(step, c)
        text = ", ".join(f".{k} = {v}" for k, v in fields.items())
        c.add(f"const tw_control control = {{{text}}};", f"TRY(tw_{step.op.lower()}(f, &control));")

    # -- what depends on sizes alone -------------------------------------------------------------------------------
    def _layout(self) -> str:
        n, plan, c = self.numbers, self.plan, self._code()
        c.add("f->is_laid_out = 0;")
        self._compare([a for a in n.assumptions if a.symbols() <= self.given], c)
        for i in n.once:
            step = plan.steps[i]
            assert isinstance(step, HostStep)
            with c.block():
                self._once(step, c)
            for b in n.late.get(i, ()):
                c.add(f"{self.symbols[b.symbol]} = {self._bound(b, c)};")
        self._compare([a for a in n.assumptions if _decided(a.symbols(), self.given, self.early)], c)
        for r in plan.requirements:
            if r.free_vars() <= self.early:
                self._require(r, c)
        self._arena(c)
        c.add(f"tw_fill(f, {self.name}_places, {len(self.places)});")
        for k, offset in enumerate(self.inside):
            if offset.free_vars() <= self.early:
                c.add(f"f->inside[{k}] = {c.of(offset)};")
        for at, where, offset in self.moving:
            c.add(f"f->table[{at}] = {where} + {c.of(offset)};")
        fixed = [0] * self.dim_count
        for at, d in self.dims:
            fixed[at] = d.value() or 0
        if self.dim_count:
            self._table("int64_t", "dims", [literal(x) for x in fixed])
            c.add(f"memcpy(f->dims, {self.name}_dims, sizeof {self.name}_dims);")
        varying = [(at, d) for at, d in self.dims if d.value() is None]
        for at, d in varying:
            c.add(f"f->dims[{at}] = {c.of(d)};")
        if varying:
            c.add(f"TRY(tw_check_dims(f->dims, {self.dim_count}, {quoted(plan.name)}));")
        c.add("tw_laid_out(f);", "return TW_OK;")
        return c.function(f"static tw_status {self.name}_layout(tw_frame *f)")

    def _once(self, step: HostStep, c: Code) -> None:
        inputs = []
        for name, shape in zip(step.inputs, step.once or (), strict=True):
            if shape is not None:
                dtype = self.plan.slots[name].dtype if name else uint8  # nobody reads an element
                inputs.append(_view(dtype.onnx, "NULL", shape, c))
            else:
                inputs.append(self._value(name, c) if name else "NULL")
        host_call(step, self.plan, inputs, self._targets(step.outputs), c)

    def _arena(self, c: Code) -> None:
        n, plan = self.numbers, self.plan
        lives = {name: life for name, life in lifetimes(plan).items() if name in n.arena}
        fixed: dict[str, int] = {}
        varying: list[tuple[int, str]] = []
        for name, k in n.arena.items():
            slot = plan.slots[name]
            sizes = [v for d in slot.shape or () if (v := d.value()) is not None]
            if len(sizes) == len(slot.shape or ()):
                fixed[name] = nbytes(tuple(sizes), slot.dtype.itemsize)
            else:
                varying.append((k, c.product(slot.dtype.itemsize, slot.shape or ())))
        if not varying:
            offsets, size = place(fixed, lives, conflicts(lives))
            self._table("int64_t", "offsets", [offsets[name] for name in n.arena])
            c.add(f"TRY(tw_use_places(f, {literal(size)}, {self.name}_offsets));")
            self.arena_bytes = size
            return
        self._table("int64_t", "bytes", [fixed.get(name, 0) for name in n.arena])
        self._table("tw_life", "lives", [f"{{{lives[name].first}, {lives[name].last}}}" for name in n.arena])
        self._table("char *const", "names", [quoted(name) for name in n.arena])
        c.add(f"memcpy(f->bytes, {self.name}_bytes, sizeof {self.name}_bytes);")
        c.add(*(f"f->bytes[{k}] = {e};" for k, e in varying))
        c.add(f"TRY(tw_place_slots(f, {self.name}_lives, {self.name}_names));")

    def _shapes(self) -> str:
        n, c = self.numbers, self._code()
        by_size = [b for b in n.early_bindings if b.axis is not None or b.slot in self.plan.constants]
        self._bind_outer(c)
        for b in by_size:
            c.add(f"{self.symbols[b.symbol]} = {self._bound(b, c)};")
        known = frozenset((*n.outer, *(b.symbol for b in by_size)))
        c.add("f->is_laid_out = 0;")
        self._agreement(c)
        self._compare([a for a in n.assumptions if a.symbols() <= known], c)
        for k, name in enumerate(self.plan.outputs):
            shape, value = self.plan.slots[name].shape, f"v[{n.results[k]}]"
            c.add(f"{value}.type = {self.plan.slots[name].dtype.onnx};")
            if shape is None or not all(d.free_vars() <= known for d in shape):
                c.add(f"{value}.rank = -1;")
            else:
                c.add(f"{value}.rank = {len(shape)};")
                c.add(*(f"{value}.shape[{axis}] = {c.of(d)};" for axis, d in enumerate(shape)))
        c.add("return TW_OK;")
        return c.function(f"static tw_status {self.name}_shapes(tw_frame *f)")

    # -- pieces ----------------------------------------------------------------------------------------------------
    def _value(self, name: str, c: Code) -> str:
        """A pointer to the contents of a slot: the value itself, or a view of its storage under the slot's shape."""
        n, slot, root = self.numbers, self.plan.slots[name], self.numbers.roots[name]
        if root in n.values:
            value = f"v[{n.values[root]}]"
            if name == root or slot.shape is None:
                return f"&{value}"
            data = f"{value}.data"
        elif root in self.plan.constants:
            data = f"tw_constant(f, {self.program.constants.place(root, self.plan.constants[root])})"
        elif root in n.arena:
            data = f"f->arena + f->offsets[{n.arena[root]}]"
        else:
            data = "NULL"
        shape = slot.shape
        if shape is None:
            content = self.plan.constants.get(root)
            if content is None:
                raise InternalError(f"slot {name!r} has no shape")
            return _view(slot.dtype.onnx, data, tuple(map(_size, np.asarray(loaded(content)).shape)), c)
        return _view(slot.dtype.onnx, data, shape, c)

    def _compare(self, assumptions: Sequence[Assumption], c: Code) -> None:
        if not assumptions:
            return
        n = self.numbers
        first = len(self.assumptions)
        left, right = [], []
        for a in assumptions:
            left.append(c.of(a.left))
            right.append(c.of(a.right))
            which = sorted(a.symbols())
            names = ", ".join([*map(quoted, which), "NULL"])
            numbers = ", ".join(str(n.symbols[s]) for s in which) or "0"
            self.assumptions.append(
                f"{{{quoted(a.node)}, {quoted(str(a.left))}, {quoted(str(a.right))}, (const char *const[]){{{names}}}, "
                f"(const int32_t[]){{{numbers}}}, '{_ONES[a.ones]}'}}"
            )
        sides = f"{c.array('const int64_t', left)}, {c.array('const int64_t', right)}"
        c.add(f"TRY(tw_check_sizes(f, {self.name}_assumptions + {first}, {sides}, {len(assumptions)}));")

    def _require(self, r: Requirement, c: Code) -> None:
        low, high, count = c.of(r.low), c.of(r.high), c.of(r.count)
        value = count if r.value is None else c.of(r.value)
        fits = f"{low} <= {high}" if r.value is None else f"{low} <= {value} && {value} <= {high}"
        what = f"{quoted(r.where)}, {quoted(r.what)}, {low}, {high}, {value}, {int(r.value is None)}"
        c.add(f"if ({count} != 0 && !({fits})) return tw_out_of_range({what});")


def _size(value: int) -> IntExpr:
    return IntExpr((), value)


def _decided(symbols: frozenset[str], before: frozenset[str], after: frozenset[str]) -> bool:
    """True for what can be judged by the symbols ``after`` and could not ``before``."""
    return symbols <= after and not symbols <= before


def _view(dtype: int, data: str, shape: Sequence[IntExpr], c: Code) -> str:
    name = c.fresh("w")
    c.add(f"const tw_value {name} = tw_view({dtype}, {data}, {len(shape)}, {c.sizes(shape)});")
    return f"&{name}"


def _stacked(step: ControlStep, c: Code) -> dict[str, object]:
    """What ``Loop`` and ``Scan`` stack: element types and shapes of the rows, axes and directions."""
    attrs: dict[str, Any] = dict(step.attrs)
    shapes = [tuple(s) for s in attrs["scan_output_shapes"]]
    body, count = step.bodies[0], len(shapes)
    lists: dict[str, list[int]] = {
        "row_types": [body.slots[o].dtype.onnx for o in body.outputs[len(body.outputs) - count :]],
        "row_ranks": [len(s) for s in shapes],
        "row_sizes": [int(d) for s in shapes for d in s],
    }
    fields: dict[str, object] = {"row_count": count}
    if step.op == "Scan":
        scanned = int(attrs["num_scan_inputs"])
        fields["scanned"] = scanned
        lists["in_axes"] = list(attrs.get("scan_input_axes") or (0,) * scanned)
        lists["in_backwards"] = list(attrs.get("scan_input_directions") or (0,) * scanned)
        lists["out_axes"] = list(attrs.get("scan_output_axes") or (0,) * count)
        lists["out_backwards"] = list(attrs.get("scan_output_directions") or (0,) * count)
    return fields | {name: c.array("static const int64_t", numbers) for name, numbers in lists.items()}
