"""The frontend room: the only one that knows ONNX.

Takes: an ONNX model as a path, bytes or message (opset 7 to the newest), and shapes for its inputs.
Gives: ``from_onnx``: a graph in the newest operators' terms, functions expanded, types inferred; or one report of all
that is not supported; large tensors are parts of the file, which are read when their elements are asked for.
May import: graph_ir, core.
Never: a loop, a schedule, a target; a copy of a weight; an exception that is not a TilewrightError for a bad model.
"""

from tilewright.frontend.importer import from_onnx

__all__ = ["from_onnx"]
