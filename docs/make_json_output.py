#!/usr/bin/env python3
"""Writes docs/json-output.md: the keys of the JSON objects that commands print.

python docs/make_json_output.py            write the page
python docs/make_json_output.py --check    exit status 1 if the page is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from generated import GeneratedPage, note

from tilewright.commands.output.json_output import SCHEMA
from tilewright.commands.output.keys import HEAD, KEYS

INTRO = f"""# JSON from the command line

{note(__file__)}

With `--json` a command prints one JSON object on standard output, and nothing else there:

```sh
tilewright bench model.onnx --shapes batch=4 --json | jq .contenders.tilewright.median_seconds
```

What is said beside the result (warnings, why onnxruntime takes no part, the line of progress) goes to standard error.
`--quiet` leaves errors alone there, `--verbose` adds what is done, given twice the seconds of each stage. In Python the
same messages go to the logger `tilewright`; the library prints nothing itself, but for the line of progress of a long
build on a terminal (`progress=False` turns it off).

An error leaves standard output empty and is one line on standard error. Exit status: 0 done; 1 a check failed
(`verify`: a layer is bad) or fewer kernels are tuned than `--require-tuned` asks; 2 the model, the inputs or the
arguments are wrong; 130 interrupted.

Times are in seconds, sizes in bytes, shares from 0 to 1. A number that is infinite, not a number or not known is
`null`. This is schema {SCHEMA}: keys may be added to it, but none goes or changes its meaning without another number in
`schema`.

In the tables `a.b` is the key `b` of the object `a`, `a[]` each element of a list, and `a.{{name}}` each value of an
object whose keys are names. Every object begins with these:

"""


def render() -> str:
    """The page."""
    parts = [INTRO + _table(HEAD)]
    parts += [f"## {command}\n\n{_table(keys)}" for command, keys in KEYS.items()]
    return "\n".join(parts)


def _table(keys: Mapping[str, str]) -> str:
    rows = "\n".join(f"| `{key}` | {text} |" for key, text in keys.items())
    return f"| key | meaning |\n|---|---|\n{rows}\n"


PAGE = GeneratedPage(__file__, "json-output.md", render)

if __name__ == "__main__":
    sys.exit(PAGE.main())
