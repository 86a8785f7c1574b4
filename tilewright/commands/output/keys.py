"""The keys of the JSON objects of commands, which a test holds them to and from which docs/json-output.md is made.

``a.b``: key ``b`` in the object ``a``; ``a[]``: each element of a list; ``a.{name}``: each value of an object whose
keys are names.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.commands.output.db_keys import DB_KEYS

HEAD: Mapping[str, str] = {
    "command": "the name of the command",
    "schema": "the number of this description: a key may be added under the same number, none goes or changes",
    "tilewright": "the version of the package",
}
"""Of every object."""

_MODEL: Mapping[str, str] = {
    "model": "the path, as it was given",
    "threads": "threads of a run",
}
_INPUTS: Mapping[str, str] = {"inputs.{name}[]": "the sizes of each input that was fed"}
_COVERAGE: Mapping[str, str] = {
    "coverage.tuned_share": "share of the run time in kernels with a record of their own, 0 to 1",
    "coverage.source": "where the shares are from: measured, or estimated from what",
    "coverage.kernels[].kernel": "name of the kernel",
    "coverage.kernels[].calls": "its calls in an inference",
    "coverage.kernels[].status": "`hit`, `near miss` or `miss`",
    "coverage.kernels[].reason": "why, in words",
    "coverage.kernels[].time_share": "share of the run time of all kernels, 0 to 1",
}
_BUILD: Mapping[str, str] = {
    "build.target": "the CPU as a target, with the features that count",
    "build.seconds.{stage}": "seconds of each stage of the build",
    "build.passes[].name": "a graph pass that ran, in order; those of fusion come last",
    "build.passes[].nodes_before": "nodes of the graph before it",
    "build.passes[].nodes_after": "and after it",
    "build.passes[].fired.{rule}": "how often each of its rules fired",
    "build.passes[].notes[]": "what else it says",
    "build.passes[].refused[].rule": "a rule that matched and was refused",
    "build.passes[].refused[].node": "where",
    "build.passes[].refused[].reason": "why, in words",
    "build.kernels[].kernel": "name of the kernel",
    "build.kernels[].nodes[]": "the nodes of each of its calls, joined by `+`",
    "build.kernels[].cached": "true if its code came from the object cache",
    "build.kernels[].parallel": "true if threads share it",
    "build.kernels[].schedule_steps": "primitives in its trace",
    "build.kernels[].code_bytes": "size of its object code",
    "build.host_operators[].operator": "an operator that runs in Python",
    "build.host_operators[].node": "its node",
    "build.host_operators[].reason": "why it has no kernel",
    "build.control_operators[].operator": "`If`, `Loop` or `Scan`",
    "build.control_operators[].node": "its node",
    "build.out_of_range": "what indices outside of their range lead to: `error` or `clamp`",
    "build.index_checks": "native checks of indices",
    "build.in_place.{output}": "the input whose memory an output may take",
    "build.implementations[].node": "a node that can be computed in several ways",
    "build.implementations[].operator": "its operator",
    "build.implementations[].chosen": "what computes it",
    "build.implementations[].by": "`user`, `record` or `estimate`",
    "build.implementations[].candidates[].name": "what could, the cheapest first",
    "build.implementations[].candidates[].cost": "estimated cost in multiply-adds",
    "build.implementations[].candidates[].error": "estimated error as a share of a channel's root mean square; null: "
    "it rounds as the definition does",
    "build.implementations[].refused[].name": "what could not",
    "build.implementations[].refused[].reason": "why, in words",
}
_MEMORY: Mapping[str, str] = {
    "memory.weight_bytes": "constants as the model has them",
    "memory.packed_bytes": "constants that were rearranged for kernels",
    "memory.arena_bytes": "where the temporaries of a call lie; null: it depends on sizes that are not known",
    "memory.output_bytes": "new arrays of a call; null as above",
    "memory.body_bytes": "arenas of the bodies of loops and branches; null as above",
    "memory.total_bytes": "the sum of what is known",
    "memory.peak_live_bytes": "the most that is in use of the arena; null: there is no step, or as above",
    "memory.missing[]": "dimensions whose sizes are not known",
    "memory.steps[].step": "kernel or operator, in the order of the run",
    "memory.steps[].nodes[]": "its nodes",
    "memory.steps[].live_bytes": "what is in use of the arena then",
}
_SPEC: Mapping[str, str] = {
    f"values.{what}[].{key}": f"of each of the {what}: {text}"
    for what in ("inputs", "outputs")
    for key, text in {
        "name": "its name",
        "type": "its element type",
        "shape[]": "its sizes, numbers or names of dimensions; null: the rank is not known",
    }.items()
}
_PROCESS: Mapping[str, str] = {
    "first_results.{contender}.median_seconds": "from the start of a process to its first result",
    "first_results.{contender}.least_seconds": "the least of them",
    "first_results.{contender}.runs": "processes",
    "run_seconds": "a run in C when everything is warm",
    "kernel_seconds": "its kernels alone",
    "processes": "processes that held the model at once",
    "memory_bytes.together": "what they held together, pages of several counted once",
    "memory_bytes.each": "what one would hold alone",
    "file_bytes": "size of the artifact",
}

KEYS: Mapping[str, Mapping[str, str]] = {
    "bench": {
        **_MODEL, **_INPUTS,
        "contenders.{name}.median_seconds": "of a run; names are `tilewright` and, if it takes part, `onnxruntime`",
        "contenders.{name}.p10_seconds": "the tenth percentile",
        "contenders.{name}.p90_seconds": "the ninetieth percentile",
        "contenders.{name}.runs": "runs that were counted",
        "speed": "onnxruntime's median over ours; null without onnxruntime",
        "notes[]": "why onnxruntime took no part",
    },
    "bench of an artifact": {"model": _MODEL["model"], **_PROCESS},
    "profile": {
        **_MODEL, **_INPUTS,
        "seconds": "sum of the kernels' medians",
        "runs": "inferences over which medians were taken",
        "kernels[].kernel": "name of the kernel; a line for each call, in the order of a run",
        "kernels[].nodes[]": "the nodes that it computes",
        "kernels[].seconds": "median of the call",
        "kernels[].time_share": "of the sum, 0 to 1",
        "kernels[].operations": "arithmetic operations; null: the sizes are unknown",
        "kernels[].bytes": "compulsory traffic; null: the sizes are unknown",
        "kernels[].peak_share": "of what the measured peaks allow, 0 to 1; null: unknown",
        "kernels[].parallel": "true if threads share it",
        "peaks.operations_per_second": "measured on these threads in float32; `peaks` is null for a foreign target",
        "peaks.bytes_per_second": "measured on these threads, from memory",
        "peaks.products.{product}": "operations in a second of products of words, by scalar operation",
        "denormals[].kernel": "the kernel or operator that gave numbers near zero; empty for an input or a constant",
        "denormals[].nodes[]": "the nodes that it computes; or the name of the input or constant",
        "denormals[].count": "how many",
        "denormals[].elements": "of how many numbers",
        "notes[]": "what to think of shares of a peak above 1",
        "counts.refusal": "why nothing could be counted; empty if something was; `counts` is null without `--counters`",
        "counts.refused.{event}": "why an event is missing",
        "counts.kernels[].kernel": "name of the kernel; a line for each call, in the order of a run on one thread",
        "counts.kernels[].nodes[]": "the nodes that it computes",
        "counts.kernels[].events.{event}": "medians: `cycles`, `instructions`, `l1_misses` (loads), `llc_misses`, "
        "`branch_misses`",
        **_MEMORY,
    },
    "verify": {
        "model": _MODEL["model"], "threads": _MODEL["threads"],
        "agrees": "true if no layer is bad",
        "tolerance": "the largest error that is good",
        "references[]": "what the layers were compared with",
        "compared.{reference}": "how many values that reference knew",
        "layers[].value": "a value, in the order of the run",
        "layers[].made_by": "the operators of its kernel, joined by `+`",
        "layers[].type": "element type and shape",
        "layers[].errors.{reference}": "largest difference, in standard deviations of the reference for floats; null: "
        "element type, shape or the places of NaN and infinity differ",
        "layers[].is_bad": "true if an error is above the tolerance",
        "first_bad": "the first bad value; null: none",
        "suspect": "which part of the compiler that accuses, in words; null: none",
        "notes[]": "a reference that could not be used, and why",
    },
    "compile": {
        **_MODEL, **_SPEC,
        "seconds": "the build took",
        "target": "the CPU as a target, with the features that count",
        "kernels": "how many",
        "cached_kernels": "those whose code came from the object cache",
        "code_bytes": "size of their object code",
        "host_operators[].operator": "an operator that runs in Python",
        "host_operators[].node": "its node",
        "host_operators[].reason": "why it has no kernel",
        **_MEMORY, **_COVERAGE,
        "written[].path": "a file that was written",
        "written[].bytes": "its size",
    },
    "tune": {
        **_MODEL,
        "log": "the tuning log, as it was given",
        "trials": "candidates that were measured",
        "stopped": "why it ended, in words",
        "remaining_gain": "the share of the network's time that more trials are expected to save, 0 to 1",
        "seconds": "all of it took",
        "spent.{part}": "seconds by what they went into; the sum is `seconds`. `running candidates` and `building "
        "candidates` are of worker processes on this machine, `waiting` is for other sessions and while the machine "
        "was disturbed, `choosing candidates` is the strategy and the cost model",
        "tasks[].task": "name of a kernel, the heaviest first",
        "tasks[].trials": "candidates that are known of it, those of the log included",
        "tasks[].failures.{kind}": "failures by kind",
        "tasks[].default_seconds": "of the default schedule; null: not measured",
        "tasks[].best_seconds": "of the best candidate; null: none succeeded",
        "network.tuned": "seconds of a run with what was found; `network` is null if it was not timed",
        "network.default": "and without",
        **_COVERAGE,
    },
    "coverage": {**_MODEL, **_COVERAGE},
    "explain": {**_MODEL, **_BUILD, **_COVERAGE, **_MEMORY},
    "doctor": {
        "cpu.name": "as the system calls it",
        "cpu.llvm_name": "as LLVM does",
        "cpu.triple": "the target triple",
        "cpu.features[]": "those that decide what code is made",
        "cpu.vector_registers": "how many",
        "cpu.vector_bits": "of how many bits",
        "cpu.fused_multiply_add": "true if it has them",
        "cpu.l1d_bytes": "first-level data cache",
        "cpu.l2_bytes": "second level",
        "cpu.l3_bytes": "third level; 0: none",
        "cpu.matrix_tiles.used_for[]": "`bfloat16`, `bytes`",
        "cpu.matrix_tiles.wrong[]": "products that it computes wrongly",
        "cpu.matrix_tiles.refusal": "why they are not used; empty if they are or if there are none",
        "system.name": "the operating system",
        "system.release": "its release",
        "system.python": "the version of Python",
        "threads.count": "the default number of threads",
        "threads.affinity": "CPUs in the affinity mask",
        "threads.quota": "CPUs that the cgroup allows; null: no limit",
        "threads.physical_cores": "null: unknown",
        "peaks[].threads": "threads of a measurement; the list is empty with `--no-peaks`",
        "peaks[].operations_per_second": "float32",
        "peaks[].bytes_per_second": "read from memory",
        "dot_products[].name": "an instruction for products of words; one thread",
        "dot_products[].elements": "types of its elements",
        "dot_products[].bits": "of its vectors",
        "dot_products[].operations_per_second": "measured",
        "denormal_slowdown": "how many times as long multiplications take with denormal results; null: not measured",
        "costs.cpu": "whose row of the table of CPUs the estimates use",
        "costs.rows[].cost": "what it is the cost of",
        "costs.rows[].unit": "its unit",
        "costs.rows[].assumed": "what estimates assume; null: nothing",
        "costs.rows[].measured": "what was measured here; null: nothing",
        "cache.directory": "of the object cache; null: it is off",
        "cache.files": "how many",
        "cache.bytes": "what they take",
        "cache.limit_bytes": "what they may take",
        "packages.{name}": "versions; null: not installed",
    },
    **DB_KEYS,
}  # fmt: skip
"""Keys of each command, after those of :data:`HEAD`, and what they mean."""
