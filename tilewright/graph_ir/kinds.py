"""Kinds that traits of an operator are made of; pattern kinds are in the way of TVM's operator patterns."""

from __future__ import annotations

from enum import Enum


class PatternKind(Enum):
    """How the elements of an operator's outputs depend on its inputs.

    The order below is the order of growing restriction; fusion reads the members, never the numbers.
    """

    VIEW = "view"  # the reshape family: the same bytes in the same order, no data moves
    INJECTIVE = "injective"  # one output element reads one input element each, at a computed place (transpose, gather)
    BROADCAST = "broadcast"  # elementwise with broadcasting
    REDUCTION = "reduction"  # an anchor: elementwise may stand before and behind it
    OUT_FUSABLE = "out_fusable"  # an anchor (matmul, convolution): elementwise behind it, before it only element moves
    OPAQUE = "opaque"  # an anchor of several stages (softmax, norms, pools): elementwise behind it, some before it
    HOST = "host"  # runs on the host in numpy: strings, sequences, data-dependent sizes
    CONTROL = "control"  # has subgraphs


class RunsAs(Enum):
    """What a group of a fused graph is when the model runs."""

    KERNEL = "kernel"  # one native function
    VIEW = "view"  # the bytes of its operand under another shape
    PLACED = "placed"  # its operands already lie in its result: nothing to do (but a border of zeros to write)
    HOST = "host"  # numpy
    CONTROL = "control"  # has subgraphs


class ElementCost(Enum):
    """What it costs to compute an element again instead of storing it."""

    LOAD = "load"  # no more than loading it: element moves and conversions
    ARITHMETIC = "arithmetic"  # a few cheap instructions
    EXPENSIVE = "expensive"  # division and transcendental functions: fusion does not repeat them


class DataLayout(Enum):
    """How an operator with our attribute ``data_layout`` takes a channels-last operand."""

    PREFERRED = "preferred"  # fast enough with it to pay for Transposes around the operator
    SUPPORTED = "supported"  # where the operand lies so already
