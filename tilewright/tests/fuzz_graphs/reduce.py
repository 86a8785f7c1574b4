"""The smallest part of a graph that still fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx

from tilewright.tests.fuzz_graphs.protos import reads
from tilewright.tests.fuzz_graphs.sample import Sample

MAX_TRIES = 250


def reduce_sample(sample: Sample, fails: Callable[[Sample], bool]) -> Sample:
    """Greedy: the first smaller sample that still fails is taken, until none does or MAX_TRIES were made."""
    tries = 0
    going = True
    while going and tries < MAX_TRIES:
        going = False
        for smaller in _candidates(sample):
            tries += 1
            if tries > MAX_TRIES:
                break
            if fails(smaller):
                sample, going = smaller, True
                break
    return sample


def _candidates(s: Sample) -> Iterator[Sample]:
    """Smaller samples, those first that save most."""
    if len(s.variants) > 1:
        yield from (s.replace(variants=(v,)) for v in s.variants)
    if len(s.outputs) > 1:
        yield from (_pruned(s.replace(outputs=(o,))) for o in s.outputs)
    made = [o for n in s.nodes for o in n.output if o and not o.endswith("_unused")]
    # a value in the middle becomes an input, later ones first: what is before it goes
    for name in reversed(made):
        if name not in s.outputs and isinstance(s.values[name][0], np.ndarray):
            yield _pruned(_as_input(s, name))
    # a value in the middle becomes the only output: what is behind it goes
    for name in made:
        if name not in s.outputs:
            yield _pruned(s.replace(outputs=(name,)))
    if len(s.outputs) > 1:
        yield from (_pruned(s.replace(outputs=tuple(p for p in s.outputs if p != o))) for o in s.outputs)
    for name, dims in s.inputs.items():
        for k, dim in enumerate(dims):
            shape = s.values[name][s.variants[0]]
            if isinstance(dim, str) and len(s.variants) == 1 and isinstance(shape, np.ndarray):
                fixed = (*dims[:k], shape.shape[k], *dims[k + 1 :])
                yield s.replace(inputs={**s.inputs, name: fixed})
    for name, dims in s.inputs.items():
        whole = all(isinstance(d, int) for d in dims) and isinstance(s.values[name][0], np.ndarray)
        if whole and name not in s.outputs:
            rest = {n: d for n, d in s.inputs.items() if n != name}
            yield s.replace(inputs=rest, constants=(*s.constants, name))
    for i, node in enumerate(s.nodes):
        for a in node.attribute:
            if a.type != onnx.AttributeProto.GRAPH:
                plain = onnx.NodeProto()
                plain.CopyFrom(node)
                del plain.attribute[[x.name for x in plain.attribute].index(a.name)]
                yield s.replace(nodes=(*s.nodes[:i], plain, *s.nodes[i + 1 :]))


def _as_input(s: Sample, name: str) -> Sample:
    """The sample with ``name`` given instead of computed."""
    nodes = []
    for n in s.nodes:
        if name in n.output:
            changed = onnx.NodeProto()
            changed.CopyFrom(n)
            changed.output[list(n.output).index(name)] = f"{name}_unused"
            if any(o and o != f"{name}_unused" for o in changed.output):
                nodes.append(changed)
        else:
            nodes.append(n)
    shapes = [a.shape for v in s.variants if isinstance(a := s.values[name][v], np.ndarray)]
    dims = tuple(d[0] if len(set(d)) == 1 else f"{name}_d{k}" for k, d in enumerate(zip(*shapes, strict=True)))
    unused = {f"{name}_unused": s.values[name]}
    return s.replace(nodes=tuple(nodes), inputs={**s.inputs, name: dims}, values={**s.values, **unused})


def _pruned(s: Sample) -> Sample:
    """Without nodes that no output needs."""
    needed = set(s.outputs)
    kept = []
    for n in reversed(s.nodes):
        if needed & set(n.output):
            kept.append(n)
            needed.update(reads(n))
    return s.replace(nodes=tuple(reversed(kept)), inputs={n: d for n, d in s.inputs.items() if n in needed})
