"""Room ``kernels``: functions to machine code, and a plan to callable code.

Takes: functions with their schedules, a call plan.
Gives: ``build``: an object per function, from the cache if it is there; ``link``: one library and its entry points;
``check_tiles``: whether this machine's matrix tiles compute what they should. One function alone, callable:
``codegen.kernel.build``.
May import: schedule, codegen, runtime, lowering, tensor_ir, machine, core.
Never: a rewrite of a graph; a measurement.
"""
