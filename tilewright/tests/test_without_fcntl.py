"""The package works where Python has no ``fcntl`` and no ``resource``, as on Windows: here their import is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MISSING = ("fcntl", "resource", "termios")

BLOCK = f"""
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in {MISSING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {MISSING!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
"""

IMPORT_ALL = """
import importlib, pkgutil
import tilewright
found = [m.name for m in pkgutil.walk_packages(tilewright.__path__, "tilewright.")]
wanted = [n for n in found if not n.startswith("tilewright.tests") and n != "tilewright.__main__"]
for name in wanted:
    importlib.import_module(name)
print(len(wanted))
"""

USE = """
import sys
from pathlib import Path
import numpy as np
import tilewright
from tilewright.autotune.measure.hostlock import HostLock
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.cli import main
from tilewright.tests.autotune.records.log_helper import mlp_model
folder = Path(sys.argv[1])
log = str(folder / "log.jsonl")
done = tilewright.tune(mlp_model(4, 8), database=log, measurer=TableMeasurer(lambda c: 1.0 + int(c.key[:6], 16)),
                       time_budget_s=None, max_trials=12, check_network=False)
count = len(done)
assert count >= 12
model = tilewright.compile(mlp_model(4, 8), database=log)
y = model.run({"x": np.ones((4, 32), np.float32)})["y"]
np.testing.assert_allclose(y.sum(axis=-1), 1.0, rtol=1e-5)
assert "3 hits" in str(model.coverage())
assert main(["db", "prune", log]) == 0
assert 0 < len(done) < count
assert main(["db", "merge", log, "-o", str(folder / "other.jsonl")]) == 0
with HostLock(folder / "lock").timing():
    pass
assert main(["report", log, "-o", str(folder / "page.html"), "--no-peaks"]) == 0
assert sorted(p.name for p in folder.iterdir()) == ["lock", "log.jsonl", "other.jsonl", "page.html"]
"""


def _run(script: str, *args: str) -> str:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCK + script, *args], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_every_module_is_imported() -> None:
    assert int(_run(IMPORT_ALL).split()[-1]) > 250


def test_tuning_and_running(tmp_path: Path) -> None:
    _run(USE, str(tmp_path))


def test_the_block_blocks() -> None:
    _run("try:\n    import fcntl\nexcept ImportError:\n    pass\nelse:\n    raise SystemExit(1)\n")
