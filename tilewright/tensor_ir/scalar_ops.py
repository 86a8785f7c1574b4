"""The scalar operations of the tensor IR: one literal table, which interpreter, verifier and codegen share.

``result``: ``same`` (the type of the first argument) or the name of a type. ``kinds``: the element kinds accepted
(``f`` float, ``i`` signed, ``u`` unsigned, ``b`` bool). Integer arithmetic wraps; integer ``div`` truncates as ONNX
asks; ``floor_mod`` takes the divisor's sign (Python), ``trunc_mod`` the dividend's (C fmod). ``max``/``min``
return NaN if either argument is NaN; ``clamp(x, low, high)`` is ``low`` if ``x`` is. ``round`` is half-to-even. Shifts
are logical for unsigned types. ``dot4`` is the sum of the products of four bytes each, those of the first int32
unsigned and those of the second signed, and ``dot4s`` the same where the sums of the first two and of the last two
products stay in int16 (they saturate); ``dot2i`` that of two int16 each; ``dot2`` that of two bfloat16 each, added in
float32 (how often it rounds, and what becomes of numbers below the normal ones, is the CPU's business). ``narrow``
rounds to bfloat16 with the same licence. ``bits`` is the pattern of a bfloat16 or float32, ``from_bits`` the float32 of
a pattern.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.core.dtypes import DType, from_name


@dataclass(frozen=True, slots=True)
class ScalarOp:
    arity: int
    result: str
    kinds: str
    flops: int = 1
    only: tuple[str, ...] = ()

    def accepts(self, dtype: DType) -> bool:
        """True for element types that the operation takes: of its kinds, and among the only ones if it has such."""
        return dtype.kind in self.kinds and (not self.only or dtype.name in self.only)

    def result_type(self, dtype: DType) -> DType:
        """The element type of the result for arguments of ``dtype``."""
        return dtype if self.result == "same" else from_name(self.result)


SCALAR_OPS: dict[str, ScalarOp] = {
    # arithmetic
    "add": ScalarOp(2, "same", "fiu"),
    "sub": ScalarOp(2, "same", "fiu"),
    "mul": ScalarOp(2, "same", "fiu"),
    "div": ScalarOp(2, "same", "fiu", 4),
    "floor_mod": ScalarOp(2, "same", "fiu", 4),
    "trunc_mod": ScalarOp(2, "same", "fiu", 4),
    "pow": ScalarOp(2, "same", "fiu", 20),
    "max": ScalarOp(2, "same", "fiub"),
    "min": ScalarOp(2, "same", "fiub"),
    "clamp": ScalarOp(3, "same", "f", 2),
    "fma": ScalarOp(3, "same", "f", 2),
    "neg": ScalarOp(1, "same", "fi"),
    "abs": ScalarOp(1, "same", "fiu"),
    "sign": ScalarOp(1, "same", "fiu"),
    # rounding
    "floor": ScalarOp(1, "same", "f"),
    "ceil": ScalarOp(1, "same", "f"),
    "round": ScalarOp(1, "same", "f"),
    "trunc": ScalarOp(1, "same", "f"),
    # transcendental
    "sqrt": ScalarOp(1, "same", "f", 4),
    "exp": ScalarOp(1, "same", "f", 12),
    "log": ScalarOp(1, "same", "f", 14),
    "sin": ScalarOp(1, "same", "f", 14),
    "cos": ScalarOp(1, "same", "f", 14),
    "tan": ScalarOp(1, "same", "f", 20),
    "asin": ScalarOp(1, "same", "f", 20),
    "acos": ScalarOp(1, "same", "f", 20),
    "atan": ScalarOp(1, "same", "f", 20),
    "sinh": ScalarOp(1, "same", "f", 20),
    "cosh": ScalarOp(1, "same", "f", 20),
    "tanh": ScalarOp(1, "same", "f", 16),
    "asinh": ScalarOp(1, "same", "f", 20),
    "acosh": ScalarOp(1, "same", "f", 20),
    "atanh": ScalarOp(1, "same", "f", 20),
    "erf": ScalarOp(1, "same", "f", 20),
    "sigmoid": ScalarOp(1, "same", "f", 16),
    # comparison and logic
    "equal": ScalarOp(2, "bool", "fiub"),
    "not_equal": ScalarOp(2, "bool", "fiub"),
    "less": ScalarOp(2, "bool", "fiub"),
    "less_equal": ScalarOp(2, "bool", "fiub"),
    "greater": ScalarOp(2, "bool", "fiub"),
    "greater_equal": ScalarOp(2, "bool", "fiub"),
    "logical_and": ScalarOp(2, "bool", "b"),
    "logical_or": ScalarOp(2, "bool", "b"),
    "logical_xor": ScalarOp(2, "bool", "b"),
    "logical_not": ScalarOp(1, "bool", "b"),
    "is_nan": ScalarOp(1, "bool", "f"),
    "is_inf": ScalarOp(1, "bool", "f"),
    # bits
    "bit_and": ScalarOp(2, "same", "iu"),
    "bit_or": ScalarOp(2, "same", "iu"),
    "bit_xor": ScalarOp(2, "same", "iu"),
    "bit_not": ScalarOp(1, "same", "iu"),
    "shift_left": ScalarOp(2, "same", "iu"),
    "shift_right": ScalarOp(2, "same", "iu"),
    # several elements in 32 bits
    "narrow": ScalarOp(1, "bfloat16", "f", only=("float32",)),
    "bits": ScalarOp(1, "int32", "f", 0, only=("bfloat16", "float32")),
    "from_bits": ScalarOp(1, "float32", "i", 0, only=("int32",)),
    "dot2": ScalarOp(2, "float32", "i", 3, only=("int32",)),
    "dot2i": ScalarOp(2, "same", "i", 3, only=("int32",)),
    "dot4": ScalarOp(2, "same", "i", 7, only=("int32",)),
    "dot4s": ScalarOp(2, "same", "i", 7, only=("int32",)),
}

DOT_PRODUCTS = ("dot2", "dot2i", "dot4", "dot4s")
"""Products of words, which hold several elements: what makes words of elements is no arithmetic."""
