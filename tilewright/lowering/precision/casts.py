"""Values that are stored in another type than some of their readers take."""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.passes.base import with_inputs
from tilewright.graph_ir.passes.editor import GraphEditor


def rounded(ed: GraphEditor, name: str) -> str:
    """``name`` in bfloat16, by a Cast at the editor's anchor; numbers below the smallest normal one become 0."""
    return ed.add("Cast", (name,), {"to": dtypes.bfloat16, "flush": 1}, hint=f"{name}.bf16")[0]


def read_through_cast(ed: GraphEditor, reader: Node, name: str, stored: str, hint: str) -> None:
    """Let ``reader`` read ``stored`` instead of ``name``, through a Cast to its type, which fuses with the reader."""
    ed.set_anchor(ed.node_id(reader))
    back = ed.add("Cast", (stored,), {"to": ed.value(name).dtype}, hint=hint)[0]
    read_instead(ed, reader, name, back)


def read_instead(ed: GraphEditor, reader: Node, name: str, new: str) -> None:
    """Let ``reader`` read ``new`` where it read ``name``."""
    ed.replace_node(reader, with_inputs(reader, tuple(new if i == name else i for i in reader.inputs)))
