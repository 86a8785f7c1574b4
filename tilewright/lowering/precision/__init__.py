"""Passes over a graph that choose the element types in which products are computed.

Takes: an optimized graph, and the target.
Gives: ``widen_operands``: products of float16 read float32; ``choose_precision``: faster ones read bfloat16, or take
each operand for two such numbers; ``dequantize_for_readers``: what is quantized is stored so. ``balanced``: weights
rounded so that errors cancel.
May import: lowering (implementations, facts), graph_ir, machine, core.
Never: changes what a model computes but for a precision that the user asked for.
"""
