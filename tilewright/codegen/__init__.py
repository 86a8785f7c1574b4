"""Machine code for scheduled tensor IR functions, through LLVM.

Takes: a scheduled :class:`tilewright.tensor_ir.ir.Func` and a :class:`tilewright.machine.target.Target`.
Gives: LLVM IR text, object bytes (cached on disk by content), loaded libraries with callable addresses.
May import: runtime.resources, tensor_ir, machine, core.
Never: changes a schedule, knows ONNX or the graph IR, or keeps state that outlives its owner.
"""
