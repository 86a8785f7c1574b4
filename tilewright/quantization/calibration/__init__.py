"""Room ``quantization/calibration``: what values a model's tensors take.

Takes: a model, samples of its inputs, names of tensors.
Gives: samples that were checked, ranges, histograms and means of tensors, scales and zero points.
May import: compile, core, inspect (onnxruntime), quantization.options.
Never: all the values of a tensor at once, of more than one sample; a change of the model.
"""
