"""A page as one script: its Python blocks, and between them its commands, both held to the output that the page shows.

``print(x)  # -> text`` says what is printed, ``...`` in it stands for anything. So do the lines below a command of
tilewright in a console block; a command without such lines is not run here.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
import shlex
from collections.abc import Iterator

from tilewright.cli import main
from tilewright.tests.sources import ROOT

_FENCE = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SHOWN = re.compile(r"\s+# -> (.*)$")


def as_script(page: str) -> str:
    """The script of a page, to be run in a directory with ``model.onnx``."""
    text = (ROOT / page).read_text(encoding="utf-8")
    parts = ["from tilewright.tests.docs.shown import said, shows"]
    for fence in _FENCE.finditer(text):
        line = text[: fence.start()].count("\n") + 2
        if fence[1] == "python":
            parts.append(checked_prints(fence[2], page, line))
        else:
            parts += [f"said({c!r}, {o!r}, {f'{page}:{line + n}'!r})" for n, c, o in commands(fence[2]) if o]
    return "\n".join(parts) + "\n"


def checked_prints(code: str, page: str, start: int) -> str:
    """The code with each ``print`` that shows its output compared."""
    lines = code.splitlines()
    found = {
        n.lineno: n
        for n in ast.walk(ast.parse(code))
        if isinstance(n, ast.Expr) and isinstance(n.value, ast.Call) and ast.unparse(n.value.func) == "print"
    }
    for number, line in enumerate(lines, 1):
        if not (shown := _SHOWN.search(line)):
            continue
        where = f"{page}:{start + number - 1}"
        assert number in found, f"{where}: an output is shown behind a print of one line only"
        statement = line.strip()
        indent = line[: len(line) - len(line.lstrip())]
        lines[number - 1] = f"{indent}with shows({shown[1]!r}, {where!r}): {statement}"
    return "\n".join(lines) + "\n"


def commands(block: str) -> Iterator[tuple[int, str, str]]:
    """Of a console block each command: its line, its text, and the output shown below it."""
    number, command, output = 0, "", list[str]()
    for n, line in enumerate([*block.splitlines(), "$ "]):
        if not line.startswith("$ "):
            output.append(line)
            continue
        if command:
            yield number, command, "\n".join(output).strip()
        number, command, output = n, line[2:], []


@contextlib.contextmanager
def shows(expected: str, where: str) -> Iterator[None]:
    """What is printed inside is ``expected``."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        yield
    require_same(out.getvalue(), expected, where)


def said(command: str, expected: str, where: str) -> None:
    """What the command prints is ``expected``."""
    words = shlex.split(command, comments=True)
    assert words[0] == "tilewright", f"{where}: expected a command of tilewright, got {words[0]}"
    with shows(expected, where):
        main(words[1:])


def require_same(printed: str, expected: str, where: str) -> None:
    """Raises AssertionError where an output is not what a page shows."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    if not re.fullmatch(pattern, printed.strip(), re.DOTALL):
        raise AssertionError(f"{where}: the page shows\n{expected}\nbut it prints\n{printed}")
