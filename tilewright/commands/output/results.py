"""Results of the other rooms as what JSON has, under the keys of :mod:`tilewright.commands.output.keys`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from tilewright.autotune.measure.interleaved_timing import Samples
from tilewright.autotune.network.tune_network import ModelTuning
from tilewright.inspect.verify import Layer, Verification
from tilewright.runtime.counting import Counts
from tilewright.runtime.coverage import Coverage
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.profile import KernelTime, Peaks, Profile


def of_inputs(feed: Mapping[str, object]) -> dict[str, list[int]]:
    """The shapes of what was fed."""
    return {name: list(np.asarray(value).shape) for name, value in feed.items()}


def of_model(path: str, model: CompiledModel) -> dict[str, Any]:
    """What every command says that runs a model."""
    return {"model": path, "threads": model.threads}


def of_samples(samples: Mapping[str, Samples]) -> dict[str, Any]:
    """Times of contenders, and our speed."""
    ours, theirs = samples["tilewright"], samples.get("onnxruntime")
    rows = {
        name: {"median_seconds": s.median, "p10_seconds": s.p10, "p90_seconds": s.p90, "runs": len(s.seconds)}
        for name, s in samples.items()
    }
    return {"contenders": rows, "speed": None if theirs is None else theirs.median / ours.median}


def of_profile(profile: Profile, runs: int) -> dict[str, Any]:
    """Times of kernels, in the order of a run."""
    peaks = profile.peaks
    return {
        "seconds": profile.seconds,
        "runs": runs,
        "kernels": [_kernel(k, profile) for k in profile.kernels],
        "peaks": None if peaks is None else _peaks(peaks),
        "denormals": [
            {"kernel": d.kernel, "nodes": list(d.nodes), "count": d.count, "elements": d.elements}
            for d in profile.denormals
        ],
        "notes": profile.doubts(),
        "counts": None if profile.counts is None else _counts(profile.counts),
    }


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "refusal": counts.refusal,
        "refused": dict(counts.refused),
        "kernels": [{"kernel": k.kernel, "nodes": list(k.nodes), "events": dict(k.counts)} for k in counts.kernels],
    }


def _peaks(peaks: Peaks) -> dict[str, Any]:
    return {
        "operations_per_second": peaks.flops_per_second,
        "bytes_per_second": peaks.bytes_per_second,
        "products": dict(peaks.products),
    }


def _kernel(k: KernelTime, profile: Profile) -> dict[str, Any]:
    limit = None if profile.peaks is None else k.limit_seconds(profile.peaks)
    return {
        "kernel": k.kernel,
        "nodes": list(k.nodes),
        "seconds": k.seconds,
        "time_share": k.seconds / (profile.seconds or 1.0),
        "operations": k.flops,
        "bytes": k.bytes,
        "peak_share": None if limit is None or k.seconds <= 0 else limit / k.seconds,
        "parallel": k.parallel,
    }


def of_coverage(coverage: Coverage) -> dict[str, Any]:
    """Every kernel, the heaviest first."""
    rows = [
        {"kernel": r.kernel, "calls": r.calls, "status": str(r.status), "reason": r.reason, "time_share": r.share}
        for r in coverage.rows
    ]
    return {"tuned_share": coverage.tuned, "source": coverage.source, "kernels": rows}


def of_tuning(done: ModelTuning) -> dict[str, Any]:
    """What tuning found, and what its time went into."""
    r, network = done.result, done.network
    return {
        "trials": r.trials,
        "stopped": r.stopped,
        "remaining_gain": r.remaining_gain,
        "seconds": sum(done.spent.values()),
        "spent": dict(done.spent),
        "tasks": [
            {
                "task": t.name, "trials": len(t.trials), "failures": t.failures, "default_seconds": t.default_seconds,
                "best_seconds": None if t.best is None else t.best.seconds,
            }
            for t in r.tasks
        ],
        "network": None if network is None else asdict(network.network),
        "coverage": of_coverage(done.coverage),
    }  # fmt: skip


def of_verification(found: Verification, references: Sequence[str]) -> dict[str, Any]:
    """Every layer, in the order of the run."""
    first = found.first_bad
    return {
        "agrees": first is None,
        "tolerance": found.tolerance,
        "references": list(references),
        "compared": {r: sum(r in x.errors for x in found.layers) for r in references},
        "layers": [_layer(x, found.tolerance) for x in found.layers],
        "first_bad": None if first is None else first.value,
        "suspect": None if first is None else found.suspect,
        "notes": list(found.notes),
    }


def _layer(x: Layer, tolerance: float) -> dict[str, Any]:
    return {
        "value": x.value,
        "made_by": x.made_by,
        "type": x.type,
        "errors": dict(x.errors),
        "is_bad": not x.worst <= tolerance,
    }
