"""Small tensor intrinsics of the tests' own, with machine code for any target, that fit into the random programs."""

from __future__ import annotations

from tilewright.tensor_ir.ir import MachineCode, TensorIntrin
from tilewright.tensor_ir.text import parse_func

_DOUBLE = """
def double_4(A: float32[4], B: out(float32[4])):
    for i in range(4):
        B[i] = add(A[i], A[i])
"""
_DOUBLE_CODE = """
  %a = load <4 x float>, ptr %A, align 4
  %b = fadd <4 x float> %a, %a
  store <4 x float> %b, ptr %B, align 4
"""
_COPY = """
def copy_2(A: float32[2, 1], B: out(float32[2])):
    for i in range(2):
        B[i] = A[i, 0]
"""
_COPY_CODE = """
  %pa = getelementptr float, ptr %A, i64 %A_0
  %pb = getelementptr float, ptr %B, i64 1
  %a = load float, ptr %A, align 4
  %b = load float, ptr %pa, align 4
  store float %a, ptr %B, align 4
  store float %b, ptr %pb, align 4
"""
_OUTER = """
def outer_2x1(A: float32[2, 1], B: float32[1], C: out(float32[2, 1])):
    for i in range(2):
        C[i, 0] = add(C[i, 0], mul(A[i, 0], B[0]))
"""
_OUTER_CODE = """
  %b = load float, ptr %B, align 4
  %a0 = load float, ptr %A, align 4
  %c0 = load float, ptr %C, align 4
  %d0 = call float @llvm.fmuladd.f32(float %a0, float %b, float %c0)
  store float %d0, ptr %C, align 4
  %pa = getelementptr float, ptr %A, i64 %A_0
  %pc = getelementptr float, ptr %C, i64 %C_0
  %a1 = load float, ptr %pa, align 4
  %c1 = load float, ptr %pc, align 4
  %d1 = call float @llvm.fmuladd.f32(float %a1, float %b, float %c1)
  store float %d1, ptr %pc, align 4
"""
_DOT = """
def dot_2(A: float32[2], B: float32[2, 1], C: out(float32[1])):
    for k in range(2):
        C[0] = add(C[0], mul(A[k], B[k, 0]))
"""
_DOT_CODE = """
  %pb = getelementptr float, ptr %B, i64 %B_0
  %pa = getelementptr float, ptr %A, i64 1
  %a0 = load float, ptr %A, align 4
  %a1 = load float, ptr %pa, align 4
  %b0 = load float, ptr %B, align 4
  %b1 = load float, ptr %pb, align 4
  %c = load float, ptr %C, align 4
  %d = call float @llvm.fmuladd.f32(float %a0, float %b0, float %c)
  %e = call float @llvm.fmuladd.f32(float %a1, float %b1, float %d)
  store float %e, ptr %C, align 4
"""
_FMA = ("declare float @llvm.fmuladd.f32(float, float, float)",)

SMALL: tuple[TensorIntrin, ...] = (
    TensorIntrin(parse_func(_DOUBLE), (), (MachineCode(_DOUBLE_CODE),)),
    TensorIntrin(parse_func(_COPY), (), (MachineCode(_COPY_CODE),)),
    TensorIntrin(parse_func(_OUTER), (), (MachineCode(_OUTER_CODE, (), _FMA),)),
    TensorIntrin(parse_func(_DOT), (), (MachineCode(_DOT_CODE, (), _FMA),)),
)
