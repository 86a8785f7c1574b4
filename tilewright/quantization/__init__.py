"""Room ``quantization``: models of float32 to models of integers, both in ONNX.

Takes: an ONNX model, samples of its inputs, options.
Gives: ``quantize``: the model with QuantizeLinear and DequantizeLinear around what runs on integers, its other nodes,
names and metadata as they were; how far its results are off, and which layers are to blame.
May import: compile, core, autotune.measure (times, for a budget), graph_ir (ranks of an imported model's values),
inspect.
Never: a graph of our own representation; a weight or a range that depends on the machine.
"""
