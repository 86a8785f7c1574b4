"""All implementations by operator: a line each. Of two with the same cost the earlier one is chosen."""

from __future__ import annotations

from tilewright.lowering.implementations import paired_bytes, split_products
from tilewright.lowering.implementations.base import Table
from tilewright.lowering.implementations.conv import depthwise_bytes, winograd
from tilewright.lowering.implementations.conv import dot_product as conv_dot_product
from tilewright.lowering.implementations.conv import pairs as conv_pairs
from tilewright.lowering.implementations.conv import shorts as conv_shorts
from tilewright.lowering.implementations.conv.depthwise import DEPTHWISE
from tilewright.lowering.implementations.conv.direct import DIRECT
from tilewright.lowering.implementations.conv.implicit_gemm import IMPLICIT_GEMM
from tilewright.lowering.implementations.conv.merged_groups import MERGED_GROUPS
from tilewright.lowering.implementations.conv.subpixel import DOT_PRODUCT as SUBPIXEL_PAIRS
from tilewright.lowering.implementations.conv.subpixel import SUBPIXEL
from tilewright.lowering.implementations.conv.vectorized_reduction import VECTORIZED_REDUCTION
from tilewright.lowering.implementations.conv.zero_insertion import ZERO_INSERTION
from tilewright.lowering.implementations.dequantized import bfloat16_tiles, fixed_point, weight_only
from tilewright.lowering.implementations.einsum import as_product
from tilewright.lowering.implementations.einsum.loops import LOOPS
from tilewright.lowering.implementations.gemm import (
    dot_product,
    halves,
    packed_gemm,
    pairs,
    shorts,
    split_k,
    unpacked_gemm,
    vectorized_reduction,
)
from tilewright.lowering.implementations.gemm.batched_gemm import BATCHED_GEMM
from tilewright.lowering.implementations.gemm.strassen import STRASSEN
from tilewright.lowering.implementations.pool import direct, separable
from tilewright.lowering.implementations.pool.whole_image import WHOLE_IMAGE

IMPLEMENTATIONS: Table = {
    "Conv": (
        DEPTHWISE,
        DIRECT,
        IMPLICIT_GEMM,
        *MERGED_GROUPS,
        VECTORIZED_REDUCTION,
        *winograd.IMPLEMENTATIONS,
        *conv_pairs.DOT_PRODUCT,
        *split_products.CONV,
    ),
    "ConvTranspose": (
        *SUBPIXEL,
        *ZERO_INSERTION,
        *SUBPIXEL_PAIRS,
        *split_products.CONV_TRANSPOSE,
    ),
    "ConvInteger": (
        *depthwise_bytes.DEPTHWISE,
        *conv_dot_product.DOT_PRODUCT,
        *conv_shorts.SHORTS,
        paired_bytes.OF_PIXELS,
        *winograd.OF_BYTES,
        conv_dot_product.LOOPS,
    ),
    "MatMul": (
        packed_gemm.BY_ROWS,
        packed_gemm.MATMUL,
        BATCHED_GEMM,
        unpacked_gemm.MATMUL,
        split_k.MATMUL,
        vectorized_reduction.MATMUL,
        STRASSEN,
        *pairs.DOT_PRODUCTS,
        *split_products.MATMUL,
        halves.BY_ROWS,
        halves.HALVES,
    ),
    "Gemm": (
        packed_gemm.GEMM,
        unpacked_gemm.GEMM,
        split_k.GEMM,
        vectorized_reduction.GEMM,
    ),
    "MatMulInteger": (
        *dot_product.DOT_PRODUCTS,
        shorts.SHORTS,
        paired_bytes.OF_MATRICES,
        dot_product.LOOPS,
    ),
    "MatMulDequantized": (
        bfloat16_tiles.BY_ROWS,
        bfloat16_tiles.TILES,
        fixed_point.BY_ROWS,
        fixed_point.PACKED,
        weight_only.BY_ROWS,
        weight_only.PACKED,
        weight_only.PANELS,
    ),
    "Einsum": (
        as_product.BATCHED_GEMM,
        as_product.UNPACKED_GEMM,
        LOOPS,
    ),
    "MaxPool": (
        direct.MAX_POOL,
        separable.MAX_POOL,
    ),
    "AveragePool": (
        direct.AVERAGE_POOL,
        separable.AVERAGE_POOL,
    ),
    "LpPool": (
        direct.LP_POOL,
        separable.LP_POOL,
    ),
    **WHOLE_IMAGE,
}
