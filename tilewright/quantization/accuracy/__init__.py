"""Room ``quantization/accuracy``: how far results are off, which layers are to blame, and which to leave out for it.

Takes: models of float32 and of integers, layers, samples, a budget.
Gives: the noise of results, of the whole model and of each layer alone; the layers to quantize under a budget.
May import: autotune.measure, compile, core, inspect (onnxruntime), quantization.
Never: a change of the model; a range.
"""
