"""Room ``writer``: the graph IR as ONNX.

Takes: a graph, of any level of the passes, with what its file said beside it.
Gives: a model of a chosen opset: messages, or a file that is written tensor by tensor.
May import: frontend (what files say, what the standard says), graph_ir, core,
    reference (the names of attributes that say how a node is computed).
Never: a rewrite that is not needed to say the graph in that opset; a weight held twice.
"""

from tilewright.writer.file import save_onnx
from tilewright.writer.model import to_onnx

__all__ = ["save_onnx", "to_onnx"]
