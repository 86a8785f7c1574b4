"""The C file of a model: its plans, and what the runtime has to know of the weights and of the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.core.plan import Plan
from tilewright.deploy.source.c_text import long_string, quoted, table
from tilewright.deploy.source.constants import Constants
from tilewright.deploy.source.plan import Program, write_plan

_HEAD = """/* Written by tilewright: the plans of a model. */
#include <string.h>

#include "host.h"
"""
WEIGHTS = "tw_weights"
"""The symbol of weights that are linked in."""


@dataclass(frozen=True, slots=True)
class Version:
    """A plan with the symbols of its entries, by where each segment is, and the model's names of its outputs."""

    plan: Plan
    entries: Mapping[str, str]
    outputs: Sequence[str]


class ModelSource:
    """``versions``: the model, and that for sizes that broadcast if there is one. Weights go to ``constants``.

    ``arena_bytes``: what the model's intermediate values need where all sizes are fixed, else 0."""

    def __init__(self, versions: Sequence[Version], constants: Constants) -> None:
        symbols = sorted({s for v in versions for s in v.entries.values()})
        self._parts = [_HEAD]
        self._parts += [f"int64_t {s}(void **table, int64_t *dims, void *pool, double *times);" for s in symbols]
        self._plans: list[str] = []
        count = self.arena_bytes = 0
        for v in versions:
            names = dict(zip(v.plan.outputs, v.outputs, strict=True))
            program = Program(constants, v.entries, names, self._parts, count)
            self._plans.append(write_plan(program, v.plan, "m"))
            count = program.plans
            if v is versions[0]:
                self.arena_bytes = program.arena_bytes

    def text(
        self, manifest: str, threads: int, features: Sequence[str], is_judged_late: bool, weights: tuple[int, int, int],
        beside: str | None,
    ) -> str:  # fmt: skip
        """``weights``: how many bytes, and their digest. ``beside``: the name of their file, or None."""
        size, *digest = weights
        fields = {
            "abi": "TW_ABI", "threads": threads, "weights_bytes": f"UINT64_C({size})",
            "weights_digest": "{" + ", ".join(f"UINT64_C({d})" for d in digest) + "}",
            "weights": WEIGHTS if beside is None else "NULL",
            "weights_name": "NULL" if beside is None else quoted(beside),
            "manifest": "the_manifest", "features": "the_features", "plan": f"&{self._plans[0]}",
            "general": f"&{self._plans[1]}" if len(self._plans) > 1 else "NULL", "is_judged_late": int(is_judged_late),
        }  # fmt: skip
        body = "\n".join(f"  .{k} = {v}," for k, v in fields.items())
        return "\n\n".join([
            *self._parts,
            table("char *const the_features", [*map(quoted, features), "NULL"]),
            f"static const char the_manifest[] =\n{long_string(manifest)};",
            *([f"extern const unsigned char {WEIGHTS}[];"] if beside is None else []),
            f"const tw_program tw_the_program = {{\n{body}\n}};\n",
        ])  # fmt: skip
