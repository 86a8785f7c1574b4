"""Room ``inspect``: what was built, whether it is right, and what tuning found.

Takes: the results of a build, a model, a tuning log.
Gives: ``explain``: the account of a build; ``verify``: a comparison layer by layer; ``report``: a log as a page;
``ort``: ONNX Runtime as the other side of a comparison.
May import: kernels, autotune.base, autotune.cost_model, autotune.records, autotune.lookup, schedule, codegen,
runtime, runtime.resources, lowering, graph_ir, tensor_ir, machine, core.
Never: a change to what it looks at; a tuning run.
"""
