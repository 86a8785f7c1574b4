"""Graph and groups to the call plan: which function runs when, on which slots. The crossing between the two IRs.

Views (reshapes) cost nothing: their slot aliases the slot of their operand. When a view is an output of the model, the
producer writes straight into the output's storage. Kernels with equal functions are one kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_var, const
from tilewright.core.dtypes import DType
from tilewright.core.errors import InternalError, ModelError
from tilewright.core.index_ranges import OutOfRange
from tilewright.core.io.pages import Pool, trim_heap
from tilewright.core.io.stored import Content, Scratch
from tilewright.core.plan import (
    SIZES_DOMAIN,
    Binding,
    ControlStep,
    HostStep,
    KernelStep,
    Offsets,
    Once,
    Plan,
    Requirement,
    Slot,
    SlotKind,
    Step,
    needed_symbols,
    step_slots,
)
from tilewright.graph_ir.data_dependent_shapes import slice_places
from tilewright.graph_ir.fused.partition import HOST, UNTYPED
from tilewright.graph_ir.fused.placement import shared_with_outputs
from tilewright.graph_ir.fused.shape_program import RUNS, SIZES, contents
from tilewright.graph_ir.fused.update_in_place import copies_in_place
from tilewright.graph_ir.ir import Constant, Graph, Group, Node, SubView, TensorType, Value, captured
from tilewright.graph_ir.kinds import RunsAs
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.pipeline import fuse_graph
from tilewright.graph_ir.symbols import symbols_in
from tilewright.lowering.backend import NativeBackend
from tilewright.lowering.checks import index_uses, known_indices, limits, requirements, unproved_indices
from tilewright.lowering.data_dependent_slices import with_sums
from tilewright.lowering.flops import func_flops, func_product, func_traffic
from tilewright.lowering.geometry.packing import flatten
from tilewright.lowering.group import LoweredGroup, lower_group
from tilewright.lowering.implementations.base import Table
from tilewright.lowering.kernel_sizes import KernelSizes, with_parameters
from tilewright.lowering.subview import Places, border_func, within
from tilewright.lowering.table import TABLE
from tilewright.machine.target import Target
from tilewright.tensor_ir.ir import Block, Const, Func, walk, walk_expr


@dataclass(frozen=True, slots=True)
class LoweredModel:
    """A fused graph, its plan without workspaces, and the function behind each kernel name (unscheduled). ``variants``:
    by node of the outermost graph, the function of its group where the node is computed by the implementation of a
    given name, and where its parameters begin; nothing else is lowered for it. ``places``: where those of a call
    begin, by kernel and offsets of the call. ``known_as``: the names that logs have for the network, where they are
    known already: those of its lowering before a log said which implementations it has."""

    graph: Graph
    plan: Plan
    funcs: Mapping[str, Func]
    variants: Mapping[str, Callable[[str], tuple[Func, Places]]] = field(default_factory=dict)
    places: Mapping[tuple[str, Offsets], Places] = field(default_factory=dict)
    known_as: tuple[str, ...] = ()


@dataclass(slots=True)
class LoweredGroups:
    """Groups of one graph that have been lowered, and refusals of native code, for the next plan of that graph: one in
    which some nodes have other implementations."""

    groups: dict[Group, LoweredGroup] = field(default_factory=dict)
    refusals: dict[Node, str | None] = field(default_factory=dict)


_SMALL = 1 << 20
"""Bytes up to which a constant that is used as it is in the model is copied next to those that are packed."""


class _Kernels:
    """Kernel names by function and the memory of constants, shared by a model and its bodies.
    ``pack``, ``out_of_range``, ``table``, ``known``: see :func:`lower_graph_to_plan`. ``symbols``: of its inputs."""

    def __init__(self, pack: bool, out_of_range: OutOfRange, table: Table, known: LoweredGroups, symbols: set[str]):
        self.pack, self.out_of_range, self.table, self.known, self.symbols = pack, out_of_range, table, known, symbols
        self.pool, self.scratch = Pool(), Scratch()
        self.variants: dict[str, Callable[[str], tuple[Func, Places]]] = {}
        self.places: dict[tuple[str, Offsets], Places] = {}
        self.funcs: dict[str, Func] = {}
        self._names: dict[tuple[Func, tuple[str, ...]], str] = {}

    def name_of(self, func: Func, hint: str) -> str:
        anonymous = dataclasses.replace(func, name="kernel")
        key = anonymous, tuple(_zeros(anonymous))
        if key not in self._names:
            safe = "".join(c if c.isalnum() else "_" for c in hint)[:40].strip("_").lower()
            name = f"k{len(self._names)}_{safe}"
            self._names[key] = name
            self.funcs[name] = dataclasses.replace(func, name=name)
        return self._names[key]


def _zeros(func: Func) -> Iterator[str]:
    """The floating-point zeros of a function as text: 0.0 and -0.0 are equal but not the same."""
    for s in walk(func.body):
        if isinstance(s, Block):
            for e in (s.value, *(() if s.init is None else (s.init,))):
                yield from (repr(x.value) for x in walk_expr(e) if isinstance(x, Const) and x.value == 0)


def lower_graph_to_plan(
    graph: Graph, target: Target, on_group: Callable[[Group], None] = lambda group: None, pack: bool = True,
    out_of_range: OutOfRange = "error", table: Table = TABLE, known: LoweredGroups | None = None,
) -> LoweredModel:  # fmt: skip
    """Lower every group of the fused ``graph``. ``on_group`` is called before each (progress). Raises UnsupportedError,
    and ModelError for an index that is out of range whenever the model runs.

    ``pack`` False leaves packed weights empty: for who wants to see the functions only. ``out_of_range``: what the plan
    does with indices outside their range. ``table``: what can compute nodes, by operator.
    ``known``: what was lowered of this graph before; it is added to.
    """
    symbols = symbols_in({i: graph.values[i] for i in graph.inputs})
    kernels = _Kernels(pack, out_of_range, table, LoweredGroups() if known is None else known, symbols)
    packed: dict[tuple[str, str], np.ndarray] = {}
    plan = _PlanBuilder(graph, target, kernels, packed, {}, on_group).build()
    if pack:
        trim_heap()  # what packing used on the way
    variants, kernels.variants = kernels.variants, {}  # which refer to the kernels: no cycle is left
    return LoweredModel(graph, plan, kernels.funcs, variants, kernels.places)


def fuse_and_lower(
    graph: Graph, target: Target, disabled: str | Sequence[str] = (), pack: bool = True,
    out_of_range: OutOfRange = "error", table: Table = TABLE, known: LoweredGroups | None = None,
) -> LoweredModel:  # fmt: skip
    """The same for a graph that has been through the passes before fusion. ``disabled``: names of passes and rules."""
    known = LoweredGroups() if known is None else known
    fused, _ = fuse_graph(graph, NativeBackend(target, out_of_range, table, known.refusals), disabled)
    return lower_graph_to_plan(fused, target, pack=pack, out_of_range=out_of_range, table=table, known=known)


class _PlanBuilder:
    """Builds the plan of one graph (the model's or a body's). ``outer``: values of the graphs around it, by name."""

    def __init__(
        self, graph: Graph, target: Target, kernels: _Kernels, packed: dict[tuple[str, str], np.ndarray],
        outer: Mapping[str, Value], on_group: Callable[[Group], None],
        is_body: bool = False,
    ) -> None:  # fmt: skip
        self.graph, self.target, self.kernels, self.packed, self.on_group = graph, target, kernels, packed, on_group
        self.is_body = is_body
        self.captures = captured(graph)
        self.outer = outer
        self.values: dict[str, Value] = {**{n: outer[n] for n in self.captures}, **graph.values}
        self.slots: dict[str, Slot] = {}
        self.constants: dict[str, Content] = {}
        self.steps: list[Step] = []
        self.requirements: dict[Requirement, None] = {}
        self.checked: set[tuple[str, int, IntExpr, IntExpr]] = set()
        self.outputs = frozenset(graph.outputs)
        placed = (g.nodes[0] for g in graph.groups or () if g.runs_as is RunsAs.PLACED)
        self.borders = {n.outputs[0]: n for n in placed if n.op == "Pad"}
        self.shared = shared_with_outputs(graph)
        self.copies = copies_in_place(graph)
        self.in_place: list[tuple[str, str]] = []
        self.made: list[str] = []

    # -- slots -------------------------------------------------------------------------------------------------
    def _type(self, name: str) -> tuple[DType, tuple[IntExpr, ...] | None]:
        from_type = self.values[name].type
        if isinstance(from_type, TensorType):
            return from_type.dtype, from_type.shape
        return dtypes.object_, None

    def _slot(self, name: str, kind: SlotKind, alias: str | None = None) -> None:
        dtype, shape = self._type(name)
        self.slots[name] = Slot(name, dtype, shape, kind, alias)

    def _constant(self, name: str) -> str:
        """The slot of a graph constant."""
        if name not in self.slots:
            constant = self.graph.constants[name]
            small = self.kernels.pack and constant.nbytes <= _SMALL
            self.constants[name] = self.kernels.pool.place(constant.array) if small else constant.content
            self._slot(name, "constant")
        return name

    def _use(self, name: str) -> str:
        return self._constant(name) if name in self.graph.constants else name

    # -- the plan ------------------------------------------------------------------------------------------------
    def build(self) -> Plan:
        graph = self.graph
        for name in (*graph.inputs, *self.captures):
            self._slot(name, "input")
        if graph.groups is None:
            raise InternalError(f"graph {graph.name!r}: expected a fused graph, see graph_ir.pipeline.fuse_graph")
        self._lower_early()
        for group in graph.groups:
            self.on_group(group)
            if group.runs_as not in (RunsAs.HOST, RunsAs.CONTROL, RunsAs.PLACED):
                self._ask_sizes(group)
            if group.runs_as is RunsAs.VIEW:
                self._lower_view(group)
            elif group.runs_as is RunsAs.HOST:
                self._lower_host(group.nodes[0])
            elif group.runs_as is RunsAs.CONTROL:
                self._lower_control(group.nodes[0])
            elif group.runs_as is RunsAs.KERNEL:
                self._lower_kernel(group)
        ranges = graph.bounds()
        assumptions = tuple(a for x in graph.assumptions if (a := x.narrowed(ranges)) is not None)
        plan = Plan(
            graph.name, graph.inputs, graph.outputs, self.slots, tuple(self.steps), self.constants,
            tuple(self._bindings()), self.captures, assumptions, graph.broadcasts, (), tuple(self.requirements),
            self.kernels.out_of_range, in_place=tuple(self.in_place), packed=tuple(self.made),
            limits=tuple(limits(graph)),
        )  # fmt: skip
        missing = needed_symbols(plan) - {b.symbol for b in plan.bindings}
        return dataclasses.replace(plan, symbols=tuple(sorted(missing & symbols_in(self.outer))))

    def _define(self, name: str) -> str:
        if name not in self.slots:
            if name in self.outputs:
                self._slot(name, "output")
            elif name in self.shared:
                if self.shared[name] not in self.slots:
                    self._slot(self.shared[name], "output")
                self._slot(name, "temp", alias=self.shared[name])
            else:
                self._slot(name, "temp")
        return name

    def _lower_view(self, group: Group) -> None:
        source, result = group.inputs[0], group.outputs[0]
        if result in self.slots or result in self.shared:
            self._define(result)
            return
        self._use(source)
        self._slot(result, "temp", alias=source)

    def _lower_early(self) -> None:
        """Steps that depend on the sizes of the inputs alone."""
        for node in self.graph.nodes:
            if node.attr(RUNS) == "once":
                for o in node.outputs:
                    self._slot(o, "host")
                by_shape = op_def(node).queries_shape
                inputs = tuple("" if by_shape or not i else self._use(i) for i in node.inputs)
                once = tuple(self.values[i].shape if by_shape else None for i in node.inputs)
                reason = "a size depends on it, and it on the sizes of the inputs alone"
                self.steps.append(_host_step(node, inputs, reason, once))
            if node.attr(SIZES) == "early":
                self._ask_sizes_of(node, contents(node))

    def _ask_sizes(self, group: Group) -> None:
        """Steps that give the sizes of results which depend on the contents of operands; native code comes after."""
        for node in group.nodes:
            if node.attr(SIZES) == "late":
                self._ask_sizes_of(node, None)

    def _ask_sizes_of(self, node: Node, read: tuple[int, ...] | None) -> None:
        """``read``: the operands that are read, of a node whose sizes follow from those of the inputs."""
        outputs = []
        known = [(f"{o}__sizes", self.values[o].shape) for o in node.outputs]
        if node.op == "Slice":
            firsts, rests = slice_places(node, self.values)
            known += [(f"{node.outputs[0]}__firsts", firsts), (f"{node.outputs[0]}__rests", rests)]
        for name, elements in known:
            self.values[name] = Value(name, TensorType(dtypes.int64, (const(len(elements)),)), elements)
            self._slot(name, "host")
            outputs.append(name)
        inputs = tuple(
            "" if not i or (read is not None and k not in read) else self._use(i) for k, i in enumerate(node.inputs)
        )
        once = None
        if read is not None:
            once = tuple(self.values[i].shape if i and k not in read else None for k, i in enumerate(node.inputs))
        reason = "the sizes of the result depend on the contents of its operands"
        self.steps.append(
            HostStep(node.op, SIZES_DOMAIN, _plain_attrs(node), inputs, tuple(outputs), node.name, reason, once)
        )

    # -- indices -------------------------------------------------------------------------------------------------
    def _require(self, node: Node) -> None:
        """Note what the indices of ``node`` ask of sizes. Raises ModelError where that never holds."""
        for use in index_uses(node, self.values):
            known = known_indices(use, self.values, self.graph.constants)
            for r in requirements(use, known, self.kernels.out_of_range, self.graph.bounds()):
                if not self.is_body and not r.free_vars() and (message := r.violation({})) is not None:
                    raise ModelError(message)
                self.requirements[r] = None

    def _add_checks(self, group: Group, inside: bool) -> None:
        """Steps that look at indices which the group computes itself, or at the others."""
        own = {o for n in group.nodes for o in n.outputs}
        mode = self.kernels.out_of_range
        uses = (u for n in group.nodes for u in unproved_indices(n, self.values, self.graph.constants, mode))
        for use in (u for u in uses if (u.value in own) is inside):
            key = use.value, use.allowed.column or 0, use.allowed.low, use.allowed.high
            if key not in self.checked:
                self.checked.add(key)
                worst = f"index_check_{len(self.steps)}"
                self.slots[worst] = Slot(worst, dtypes.uint64, (), "temp")
                self.steps.append(use.check(self._use(use.value), worst))

    # -- steps ---------------------------------------------------------------------------------------------------
    def _lower_host(self, node: Node) -> None:
        self._require(node)
        for o in filter(None, node.outputs):
            self._slot(o, "host")
        inputs = tuple(self._use(i) if i else "" for i in node.inputs)
        self.steps.append(_host_step(node, inputs, str(node.attr(HOST, UNTYPED))))

    def _lower_control(self, node: Node) -> None:
        bodies: list[Plan] = []
        attrs: dict[str, object] = {}
        order = ("then_branch", "else_branch") if node.op == "If" else ("body",)
        graphs = dict(node.subgraphs())
        for key in order:
            body = graphs[key]
            around = {**self.outer, **self.values}
            builder = _PlanBuilder(body, self.target, self.kernels, self.packed, around, self.on_group, True)
            bodies.append(builder.build())
            for name in captured(body):
                self._use(name)
        for k, v in node.attrs:
            if not isinstance(v, Graph):
                attrs[k] = v
        n_state = len(node.inputs) - (2 if node.op == "Loop" else 0)
        if node.op == "Scan":
            n_state -= int(attrs["num_scan_inputs"])  # type: ignore[call-overload]
        if node.op != "If":
            first = n_state + (1 if node.op == "Loop" else 0)
            scans = [self._body_output(graphs["body"], o) for o in graphs["body"].outputs[first:]]
            attrs["scan_output_dtypes"] = tuple(d.numpy for d, _ in scans)
            attrs["scan_output_shapes"] = tuple(
                tuple(v if (v := d.value()) is not None else 0 for d in s or ()) for _, s in scans
            )
        for o in node.outputs:
            if o:
                self._slot(o, "host")
        inputs = tuple(self._use(i) if i else "" for i in node.inputs)
        step = ControlStep(node.op, tuple(sorted(attrs.items())), inputs, node.outputs, tuple(bodies), node.name)  # type: ignore[arg-type]
        self.steps.append(step)

    def _body_output(self, body: Graph, name: str) -> tuple[DType, tuple[IntExpr, ...] | None]:
        value = body.values.get(name) or self.values[name]
        return (value.type.dtype, value.type.shape) if isinstance(value.type, TensorType) else (dtypes.object_, None)

    def _lower_kernel(self, group: Group) -> None:
        for node in group.nodes:
            self._require(node)
        self._add_checks(group, inside=False)
        lowered, sizes = self._lowered(group)
        names = [self._use(i) for i in lowered.inputs]
        names += [self._packed_constant(lowered, i) for i in range(len(lowered.constants))]
        names += lowered.outputs
        func = self._in_place(lowered.func, names, sizes)
        args = [p.root if (p := self._place(n)) is not None else n for n in names]
        offsets = tuple((k, self._offset(p)) for k, n in enumerate(names) if (p := self._place(n)) is not None)
        if not self.is_body:
            self.kernels.variants |= {n.name: partial(self._variant, group, n) for n in group.nodes}
        for root in args[len(args) - func.outputs :]:
            if root not in self.slots and root in self.borders:
                self._fill_border(root)
            self._define(root)
        kernel = self.kernels.name_of(func, "_".join(n.op for n in group.nodes))
        if offsets:
            self.kernels.places[kernel, offsets] = self._places(names)
        self.steps.append(
            KernelStep(
                kernel, tuple(args), sizes.arguments(func), tuple(n.name for n in group.nodes), False,
                sizes.at_the_call(func_flops(lowered.func)), sizes.at_the_call(func_traffic(lowered.func)),
                offsets, func_product(lowered.func), self._same(names),
            )
        )  # fmt: skip
        self._add_checks(group, inside=True)

    def _lowered(self, group: Group) -> tuple[LoweredGroup, KernelSizes]:
        """The function of a group, and what its sizes are called in it."""
        sizes, values = with_parameters(group, with_sums(group, self.values), self.kernels.symbols)
        known = self.kernels.known.groups
        if group not in known:
            clamps = self.kernels.out_of_range == "clamp"
            graph = self.graph.replace(values=values)
            known[group] = lower_group(graph, group, self.target, clamps, self.kernels.table)
        return known[group], sizes

    def _in_place(self, func: Func, names: Sequence[str], sizes: KernelSizes) -> Func:
        """The function on the larger values that some of its parameters, given by ``names``, lie in."""
        for k, name in enumerate(names):
            if (place := self._place(name)) is not None:
                func = within(func, func.params[k].name, sizes.shape(self._type(place.root)[1] or ()))
        return func

    def _same(self, names: Sequence[str]) -> tuple[int, int] | None:
        """The positions of operand and result of a copy for an update in place; notes what may be the same memory."""
        pair = self.copies.get(names[-1])
        if pair is None or pair[1] not in names:
            return None
        self.in_place.append(pair)
        return names.index(pair[1]), len(names) - 1

    def _place(self, name: str) -> SubView | None:
        return self.values[name].place if name in self.values else None

    def _places(self, names: Sequence[str]) -> Places:
        return tuple((k, p.offsets) for k, n in enumerate(names) if (p := self._place(n)) is not None)

    def _offset(self, place: SubView) -> IntExpr:
        """The bytes in front of a place."""
        dtype, shape = self._type(place.root)
        return flatten([const(o) for o in place.offsets], (shape or ())[1:]) * dtype.itemsize

    def _variant(self, group: Group, node: Node, implementation: str) -> tuple[Func, Places]:
        """The function of a group in which ``node`` has another implementation, and where its parameters begin."""
        other = node.with_attrs(implementation=implementation)
        changed = dataclasses.replace(group, nodes=tuple(other if n is node else n for n in group.nodes))
        lowered, sizes = self._lowered(changed)
        names = [*lowered.inputs, *("" for _ in lowered.constants), *lowered.outputs]
        return self._in_place(lowered.func, names, sizes), self._places(names)

    def _fill_border(self, root: str) -> None:
        """A step that writes zeros around what kernels compute in the middle of ``root``."""
        dtype, shape = self._type(root)
        pad = self.borders[root]
        middle = self.values[pad.inputs[0]]
        offsets, inner = middle.place.offsets if middle.place else (), middle.shape
        sizes = KernelSizes((*(shape or ()), *inner), kept=self.kernels.symbols)
        func = border_func(dtype, sizes.shape(shape or ()), offsets, sizes.shape(inner))
        kernel = self.kernels.name_of(func, "border")
        call = sizes.arguments(func), (pad.name,)
        self.steps.append(KernelStep(kernel, (root,), *call, False, const(0), const(0)))

    def _packed_constant(self, lowered: LoweredGroup, i: int) -> str:
        packed = lowered.constants[i]
        if packed.source is not None and packed.transform is None and packed.source in self.graph.constants:
            return self._constant(packed.source)
        key = (packed.source or "", packed.key)
        if key not in self.packed:
            pack, scratch = self.kernels.pack, self.kernels.scratch
            content = packed.evaluate(self.graph.constants, scratch) if pack else np.empty(0, np.uint8)
            self.packed[key] = self.kernels.pool.place(content)
        array = self.packed[key]
        for known, other in self.constants.items():
            if other is array:
                return known
        name = f"packed_{len(self.constants)}"
        buffer = lowered.func.params[len(lowered.inputs) + i]
        self.slots[name] = Slot(name, buffer.dtype, buffer.shape, "constant")
        self.constants[name] = array
        self.made.append(name)
        return name

    def _bindings(self) -> list[Binding]:
        """Where each symbol is read: an input's bare dimension if there is one, else the first late value with it."""
        bound: set[str] = set()
        out: list[Binding] = []
        names = [*self.graph.inputs, *self.captures]
        for step in self.steps:
            names += step.args if isinstance(step, KernelStep) else step_slots(step)[1]
        for name in names:
            if name not in self.values:
                continue
            _, shape = self._type(name)
            host = self.slots[name].kind in ("input", "host")
            for axis, d in enumerate(shape or ()):
                symbol = as_var(d)
                if host and symbol is not None and symbol not in bound:
                    bound.add(symbol)
                    out.append(Binding(symbol, name, axis=axis))
            for element, d in enumerate(self.values[name].data or ()):
                symbol = as_var(d)
                if symbol is not None and symbol not in bound:
                    bound.add(symbol)
                    out.append(Binding(symbol, name, element=element))
        return out


def _host_step(node: Node, inputs: tuple[str, ...], reason: str, once: Once = None) -> HostStep:
    own = op_def(node).evaluate
    return HostStep(node.op, node.domain, _plain_attrs(node), inputs, node.outputs, node.name, reason, once, own)


def _plain_attrs(node: Node) -> tuple[tuple[str, Any], ...]:
    return tuple((k, v.array if isinstance(v, Constant) else v) for k, v in node.attrs)
