"""Schedules: what to do to the loops of a function, as a trace of small checked steps.

Takes: a tensor_ir function and a trace (steps as data, text or JSON), or a user driving a Schedule.
Gives: an equivalent function with other loops; a ScheduleError names the step and the precondition that fails.
May import: tensor_ir, machine, core.
Never: changes what is computed, looks at ONNX or the graph, generates code, measures time or draws random numbers.
"""
