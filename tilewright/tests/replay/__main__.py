"""Command line: write the hashes anew and say which changed; with a folder, also the texts, to compare two versions."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilewright.tests.replay.outputs import NETWORKS, TARGETS, UPDATE, hashes, read_expected, texts, write_expected


def main() -> None:
    parser = argparse.ArgumentParser(prog=UPDATE, description=__doc__)
    parser.add_argument("--texts", type=Path, help="write the texts into this folder, and no hashes")
    args = parser.parse_args()
    keys = [(name, target) for name in NETWORKS for target in TARGETS]
    if args.texts is not None:
        args.texts.mkdir(parents=True, exist_ok=True)
        for name, target in keys:
            for part, text in texts(name, target).items():
                (args.texts / f"{name}.{target}.{part}").write_text(text, encoding="utf-8")
        return
    before = read_expected()
    found = {f"{name}/{target}": hashes(name, target) for name, target in keys}
    for key, parts in found.items():
        changed = [p for p, h in parts.items() if before.get(key, {}).get(p) != h]
        if changed:
            print(f"{key}: {', '.join(changed)}")
    write_expected(found)


if __name__ == "__main__":
    main()
