"""The keys of the JSON objects of the actions of ``db``, as ``keys.py`` has those of other commands."""

from __future__ import annotations

from collections.abc import Mapping

_KERNEL: Mapping[str, str] = {
    "workload": "hash of the computation",
    "task": "its name for people",
    "cpu": "LLVM's name of the CPU",
    "threads": "threads of the target",
}
_CHANGE: Mapping[str, str] = {
    **_KERNEL,
    "old_seconds": "of the best record before; null: there was none",
    "new_seconds": "of the best record now; null: there is none",
    "ratio": "new over old",
    "p": "how probable such a difference is by chance, corrected for the number of kernels",
    "change": "`faster`, `slower`, `no difference`, `too few samples`, `only in the new` or `only in the old`",
    "same_schedule": "true if both have the same candidate",
}
_COUNTS: Mapping[str, str] = {
    "measurements": "measurements",
    "failures": "of them failures",
    "workloads": "computations that they are of",
    "verdicts": "verdicts in networks",
    "choices": "choices of implementation or precision",
}


def _inside(name: str, keys: Mapping[str, str]) -> dict[str, str]:
    return {f"{name}.{k}": text for k, text in keys.items()}


_ACTIONS: Mapping[str, Mapping[str, str]] = {
    "db show": {
        **_inside("workloads[]", _KERNEL),
        "workloads[].implementation": "by what the node is computed; empty: it has no choice, or the log does not say",
        "workloads[].isa": "architecture and vector unit",
        "workloads[].models[]": "name of a model's file and the beginning of its digest",
        "workloads[].records": "measurements",
        "workloads[].failures.{kind}": "failures by kind",
        "workloads[].best_seconds": "of the best candidate; null: all failed",
        "workloads[].latest": "time of the latest measurement, seconds since 1970",
        "skipped[]": "what is wrong with a line that was skipped",
    },
    "db top": {
        "workloads[].workload": "hash of the computation",
        "workloads[].candidates[].candidate": "digest of the schedule, the best first",
        "workloads[].candidates[].task": "the computation's name for people",
        "workloads[].candidates[].implementation": "by what the node is computed; empty as in `db show`",
        "workloads[].candidates[].cpu": "LLVM's name of the CPU",
        "workloads[].candidates[].threads": "threads of the target",
        "workloads[].candidates[].seconds": "of a run",
        "workloads[].candidates[].samples[]": "seconds of a run each",
        "workloads[].candidates[].error": "largest deviation from the naive schedule's result, relative",
        "workloads[].candidates[].decisions.{label}": "what was decided",
        "workloads[].candidates[].trace[]": "a step of the schedule; `trace` is null without `--trace`",
    },
    "db check": {
        "measurements": "measurements with a time",
        "do_not_replay[].workload": "hash of the computation",
        "do_not_replay[].task": "its name for people",
        "do_not_replay[].why": "what was refused",
        "do_not_replay[].measurements": "how many",
        "skipped[]": "what is wrong with a line that was skipped",
    },
    "db explain": {
        "kernels[].kernel": "name of the kernel",
        "kernels[].calls": "its calls in an inference",
        "kernels[].status": "`hit`, `near miss` or `miss`",
        "kernels[].reason": "why, in words",
        "kernels[].share": "of the run time of all kernels, 0 to 1",
        "measurements": "measurements in the log",
        "foreign_measurements": "of them of computations that the network does not have",
        "foreign_workloads": "how many computations these are",
        "judged": "verdicts and choices in the log",
        "judged_elsewhere": "of them on other networks",
    },
    "db diff": {
        "alpha": "what was asked for",
        "threshold": "what was asked for",
        "test": "what counts as a difference, in words",
        "geometric_mean": "of the ratios of kernels that are in both; null: none are",
        "counts.{change}": "kernels by what became of them",
        **_inside("kernels[]", _CHANGE),
    },
    "db verify": {
        "dry_run": "true if nothing was measured",
        "counts.{finding}": "winners by what was found",
        "winners[].workload": "hash of the computation",
        "winners[].task": "its name for people",
        "winners[].candidate": "digest of the schedule",
        "winners[].finding": "`holds`, `slower than the default`, `does not replay`, `wrong result`, `fails`, "
        "`not checked`",
        "winners[].why": "of a finding that is not a time",
        "winners[].recorded_seconds": "what the record says",
        "winners[].seconds": "measured now",
        "winners[].default_seconds": "of the default schedule, in turns with it",
        "winners[].p": "how probable the difference is by chance, corrected for the number of kernels",
    },
    "db merge": {
        "output": "the log that was written",
        "dry_run": "true if it was not",
        "added": "lines that came to it",
        "lines": "lines that it has, or would have",
        "bytes": "its size",
        "skipped.{log}": "damaged lines of each source",
        **_inside("better[]", _CHANGE),
    },
    "db prune": {
        "log": "the log",
        "output": "where what is kept was written",
        "dry_run": "true if nothing was written",
        **_inside("before", _COUNTS),
        **_inside("after", _COUNTS),
        "removed": "lines that went, without definitions",
        "torn_lines": "of them lines that are no JSON",
        "lines_left_alone": "damaged lines and those of later versions, which stay",
        "bytes_before": "size of the log",
        "bytes_after": "size of what was written; null: nothing was",
    },
    "db import": {
        "output": "the log that was written",
        "dry_run": "true if it was not",
        "read": "lines that were understood",
        "added": "lines that came to the log",
        "already_there": "lines that it had",
        "refused.{reason}": "lines that were not understood, by reason",
        "foreign[].what": "what another program tuned",
        "foreign[].target": "its target",
        "foreign[].arguments[]": "shapes and types",
        "foreign[].records": "its records, of which none is taken",
        "foreign[].best_seconds": "by that program's code; null: all failed",
        "foreign[].decisions.{name}": "of its best record, as JSON text",
        "foreign[].tile[]": "rows and columns of its register tile; `tile` is null: it has none, or none that is known",
        "foreign[].why.{reason}": "records by the reason that they are not taken",
    },
}
DB_KEYS: Mapping[str, Mapping[str, str]] = {
    name: {"action": "the name of the action", **keys} for name, keys in _ACTIONS.items()
}
"""By command and action."""
