"""GPTQ: a weight rounded one input after the other, each rounding error made up for by those that are still to come.

Source: Frantar et al., GPTQ, ICLR 2023, algorithm 1. With the Hessian ``H = 2 X^T X`` of the product's square error
and ``U``, upper triangular with ``U^T U = H^-1``, the error ``e`` of input ``i`` is spread as
``W[j] -= U[i, j] e / U[i, i]`` for the inputs ``j > i``. Inputs are rounded in their order; the scale of a block is
that of its weights as they are when its turn comes.
"""

from __future__ import annotations

import numpy as np

from tilewright.core.errors import InputError, ModelError
from tilewright.core.extras import optional_package
from tilewright.quantization.integers import LARGEST, IntegerWeight, block_scale

_DAMPING = 0.01
"""Added to the diagonal of the Hessian, in units of its mean."""
_AT_ONCE = 128
"""Inputs after which the rest of the weight is told of their errors."""


def gptq_weight(w: np.ndarray, upper: np.ndarray, block: int, kind: str) -> IntegerWeight:
    """``w`` [inputs, outputs] in blocks of inputs, for ``upper`` [inputs, inputs] of :func:`inverse_factor`."""
    rest = w.astype(np.float32)
    q = np.zeros(w.shape, np.int8)
    scales = []
    most = LARGEST[kind]
    step = max(_AT_ONCE // block, 1) * block
    for start in range(0, len(w), step):
        end = min(start + step, len(w))
        part, errors = rest[start:end], np.zeros((end - start, w.shape[1]), np.float32)
        for k in range(end - start):
            if k % block == 0:
                scales.append(block_scale(part[k : k + block], 0, block, kind)[0])
            row = np.clip(np.rint(part[k] / scales[-1]), -most, most)
            q[start + k] = row
            errors[k] = (part[k] - row * scales[-1]) / upper[start + k, start + k]
            part[k + 1 :] -= np.outer(upper[start + k, start + k + 1 : end], errors[k])
        rest[end:] -= upper[start:end, end:].T @ errors
    return IntegerWeight(q, np.stack(scales), 0, block)


def inverse_factor(name: str, hessian: np.ndarray) -> np.ndarray:
    """Upper triangular ``U``, float32 [inputs, inputs], with ``U^T U`` the inverse of the damped ``hessian``.

    With rows and columns in reverse order the lower factor of Cholesky is an upper one, ``H = R R^T``, and U = R^-1.
    Raises ModelError for a Hessian that is not positive definite even when it is damped, InputError without scipy.
    """
    try:
        linalg, lapack = (optional_package(f"scipy.linalg{part}", "quantize") for part in ("", ".lapack"))
    except ModuleNotFoundError as e:
        raise InputError(f"gptq: {e}") from e
    h = hessian.astype(np.float64)
    idle = np.diag(h) == 0
    h[idle, idle] = 1.0
    h[np.diag_indices_from(h)] += _DAMPING * np.diag(h).mean()
    try:
        factor = linalg.cholesky(h[::-1, ::-1], lower=True, overwrite_a=True)[::-1, ::-1]
    except np.linalg.LinAlgError as e:
        raise ModelError(f"{name}: expected inputs with a positive definite Hessian: {e}") from e
    return np.asarray(np.triu(lapack.dtrtri(factor)[0]), np.float32)
