"""Operands that broadcast along dims which only a call knows to be 1, repeated by nodes of their own.

``y = Add(a, b)`` with ``a[n, 4]`` and ``b[m, 4]`` becomes::

    sizes = CommonSizes(a, b) {axes: (0, 0), dims: (0, 0), operands: (0, 1), rank: 2}     <broadcast(m, n), 1>
    a' = BroadcastTo(a, sizes)                                                            [broadcast(m, n), 4]
    b' = BroadcastTo(b, sizes)
    y = Add(a', b')

Nothing reads the elements of ``sizes`` at run time: they are known as expressions over the sizes of the inputs. The
repetition itself is fused with what reads it, as a stride that is zero where the size is 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from tilewright.graph_ir.ir import Attribute, Node, make_attrs
from tilewright.graph_ir.names import NameSupply
from tilewright.graph_ir.ops.base import Places

Repeated: TypeAlias = Mapping[int, Mapping[int, Places]]
"""Input -> axis -> the places whose sizes broadcast to the size that the axis is repeated to."""


def repeat_operands(node: Node, repeated: Repeated, ranks: Mapping[int, int], names: NameSupply) -> Iterator[Node]:
    """Nodes that repeat operands of ``node``, then ``node`` reading their results. ``ranks``: of its inputs."""
    inputs = list(node.inputs)
    for i, axes in repeated.items():
        read = tuple(dict.fromkeys(node.inputs[k] for places in axes.values() for k, _ in places))
        flat = [(axis, read.index(node.inputs[k]), dim) for axis, places in axes.items() for k, dim in places]
        attrs: dict[str, Attribute] = {
            "axes": tuple(a for a, _, _ in flat), "operands": tuple(k for _, k, _ in flat),
            "dims": tuple(d for _, _, d in flat), "rank": ranks[i],
        }  # fmt: skip
        sizes, inputs[i] = names.fresh(f"{node.inputs[i]}.sizes"), names.fresh(f"{node.inputs[i]}.repeated")
        yield Node("CommonSizes", read, (sizes,), make_attrs(attrs), names.fresh(f"{sizes}.node"))
        yield Node("BroadcastTo", (node.inputs[i], sizes), (inputs[i],), (), names.fresh(f"{inputs[i]}.node"))
    yield dataclasses.replace(node, inputs=tuple(inputs))
