"""Room ``quantization/rewrites``: models of float32 that compute the same and lose less when they are quantized.

Takes: a model, statistics of its tensors.
Gives: the model with other constants: batch normalization folded, channels scaled.
May import: quantization.layers, quantization.onnx_editor, quantization.operators.
Never: an integer.
"""
