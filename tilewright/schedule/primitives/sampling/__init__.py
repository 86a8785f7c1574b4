"""Primitives that record a decision in a trace; they leave the function as it is.

Takes: candidates and the one that was chosen.
Gives: the function itself, or a ScheduleError if the choice is none of the candidates.
May import: schedule.base, tensor_ir.
Never: chooses.
"""
