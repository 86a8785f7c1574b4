"""Room ``frontend/model_file``: the bytes of a model.

Takes: a path, bytes or a message, with the files of its external data.
Gives: a message without its large tensors; tensors that are views of these bytes; random weights for models without.
May import: core.
Never: an operator's meaning; a tensor's bytes read before somebody asks.
"""
