"""Values that are stored in another type than some of their readers take."""

from __future__ import annotations

import dataclasses

from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.passes.editor import GraphEditor


def read_through_cast(ed: GraphEditor, reader: Node, name: str, stored: str, hint: str) -> None:
    """Let ``reader`` read ``stored`` instead of ``name``, through a Cast to its type, which fuses with the reader."""
    ed.set_anchor(ed.node_id(reader))
    back = ed.add("Cast", (stored,), {"to": ed.value(name).dtype}, hint=hint)[0]
    inputs = tuple(back if i == name else i for i in reader.inputs)
    ed.replace_node(reader, dataclasses.replace(reader, inputs=inputs))
