"""Room ``reference/spatial``: operators over the spatial axes of images.

Takes: attributes and arrays of shape (N, C, spatial...), as the rest of ``reference`` does.
Gives: convolutions, pools, resizing, sampling and regions of interest.
May import: reference.quantize, reference.onnx_ops.
Never: a kernel, or anything else that it is to check.
"""
