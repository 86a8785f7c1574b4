"""The tensor IR: one fused operator as loops around blocks, its meaning, its text and facts about it.

Takes:      formulas (``compute``), or a function of loops and blocks (``ir``).
Gives:      verified functions, their text (``text``), their results (``interpreter``) and facts (``analysis``).
May import: core, machine.
Never:      changes a loop (that is ``schedule``), knows a graph operator, or emits machine code.
"""
