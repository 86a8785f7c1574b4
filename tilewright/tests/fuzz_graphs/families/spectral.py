"""Signals: Fourier transforms, windows, mel weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Draft, Rejected, Val

SHARE = 0.3


def dft(d: Draft) -> object:
    if d.opset < 17:
        raise Rejected("from 17 on")
    parts = d.one_of([1, 2])
    x = d.new(d.one_of([np.float32, np.float32, np.float64]), (d.dim(True), d.dim(True), parts), 0.1, named=0.0)
    attrs: dict[str, object] = {"inverse": d.integer(0, 1)}
    if parts == 1 and not attrs["inverse"] and d.chance(0.5):
        attrs["onesided"] = 1
    length: list[Val | None] = [d.scalar(d.integer(1, 9), np.int64)] if d.chance(0.4) else []
    if d.opset >= 20:
        axis = [d.scalar(1, np.int64)] if d.chance(0.5) else []
        if axis and not length:
            length = [None]
        return d.emit("DFT", [x, *length, *axis], attrs)
    return d.emit("DFT", [x, *length], {**attrs, "axis": 1})


def stft(d: Draft) -> object:
    if d.opset < 17:
        raise Rejected("from 17 on")
    frame = d.integer(2, 8)
    x = d.new(np.float32, (d.dim(True), d.fixed(d.integer(frame, 33)), 1), 0.1, named=0.0)
    window = d.weight(np.float32, (frame,)) if d.chance(0.6) else None
    operands = [x, d.scalar(d.integer(1, 4), np.int64, 1.0), window, d.scalar(frame, np.int64, 1.0)]
    return d.emit("STFT", operands, {"onesided": d.integer(0, 1)})


def _window(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        if d.opset < 17:
            raise Rejected("from 17 on")
        attrs = {"periodic": d.integer(0, 1), **({"output_datatype": d.one_of([1, 11])} if d.chance(0.4) else {})}
        return d.emit(op, [d.scalar(d.integer(2, 17), d.one_of([np.int64, np.int32]))], attrs)

    return generate


def mel(d: Draft) -> object:
    if d.opset < 17:
        raise Rejected("from 17 on")
    numbers = [d.scalar(v, np.int64) for v in (d.integer(3, 9), d.one_of([16, 32]), d.one_of([8000, 16000]))]
    edges = [d.scalar(v, np.float32) for v in (d.one_of([0.0, 100.0]), d.one_of([2000.0, 3900.0]))]
    return d.emit("MelWeightMatrix", [*numbers, *edges])


GENERATORS: Mapping[str, object] = {
    "DFT": dft, "STFT": stft, "MelWeightMatrix": mel,
    **{op: _window(op) for op in ("HannWindow", "HammingWindow", "BlackmanWindow")},
}  # fmt: skip
