"""Room ``autotune/lookup``: records to schedules and implementations.

Takes: a lowered model and a database.
Gives: the implementation of each node and the schedule of each kernel, with the status and the reason; names of
networks and workloads.
May import: autotune.base, autotune.records, autotune.measure, schedule, codegen, runtime, lowering, graph_ir,
tensor_ir, machine, core.
Never: a search; a record used that does not replay.
"""
