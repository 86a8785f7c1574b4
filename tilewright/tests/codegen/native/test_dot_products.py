"""Loops of one instruction: what they are made of, on CPUs that this machine need not be."""

from __future__ import annotations

import ctypes

import pytest

from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.codegen.llvm.jit import Library, assembly_text, compile_object
from tilewright.codegen.native.dot_products import (
    CHAINS,
    DOT_PRODUCTS,
    TILE_PRODUCTS,
    DotProduct,
    dot_product_text,
    dot_products_of,
)
from tilewright.tests.codegen.matrix_tiles import IMPORTS, State, simulated, tiles, with_tiles, without_tiles

__all__ = ["tiles"]

CPUS = {
    "haswell": {"vpmaddwd", "vpmaddubsw"},
    "alderlake": {"vpmaddwd", "vpdpbusd"},
    "znver4": {"vpmaddwd", "vpdpbusd", "vdpbf16ps"},
    "sapphirerapids": {"vpmaddwd", "vpdpbusd", "vdpbf16ps", "tdpbf16ps", "tdpbusd"},
}


@pytest.mark.parametrize("cpu", CPUS)
def test_a_cpu_has_its_instructions_and_each_loop_has_its_own(cpu: str) -> None:
    target = parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    found = list(dot_products_of(target))
    assert {d.name for d in found} == CPUS[cpu]
    on_vectors = [d for d in found if d not in TILE_PRODUCTS]
    assert len({d.elements for d in on_vectors}) == len(on_vectors)
    for d in found:
        lines = assembly_text(dot_product_text("spin", d, target), target).splitlines()
        used = [x for x in lines if d.name in x]
        assert len(used) % CHAINS == 0 if d in TILE_PRODUCTS else len(used) == CHAINS  # LLVM writes steps out
        assert used
        assert all(("%zmm" in x) == (d.bits == 512) for x in used)
        assert not any("(%rsp)" in x for x in lines)  # chains that are spilled wait for memory


def test_operations_are_those_of_whole_registers() -> None:
    narrow = {"bfloat16": 16, "uint8 by int8": 8, "int16": 16}
    assert all(d.operations == 2 * d.bits // narrow[d.elements] for d in DOT_PRODUCTS)
    assert all(d.operations == 16 * 2 * d.bits // narrow[d.elements] for d in TILE_PRODUCTS)


@pytest.mark.parametrize("d", TILE_PRODUCTS)
def test_the_loop_of_matrix_tiles(tiles: State, d: DotProduct) -> None:
    text = simulated(dot_product_text("spin", d, with_tiles()))
    library = Library([compile_object(text, without_tiles(detect_host()))], ("spin",), IMPORTS)
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.addresses["spin"])(3)
    tiles.require_clean()
    assert tiles.calls[d.name] == 3 * CHAINS


def test_the_loops_of_this_machine_end() -> None:
    host = detect_host()
    for d in dot_products_of(host):
        library = Library([compile_object(dot_product_text("spin", d, host), host)], ("spin",), {})
        ctypes.CFUNCTYPE(None, ctypes.c_int64)(library.addresses["spin"])(3)
