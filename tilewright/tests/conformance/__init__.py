"""ONNX's own backend test suite: every case compiled and run, each with a checked-in expected status.

``python -m tilewright.tests.conformance`` runs it and prints the counts; ``--update`` rewrites ``expected.json``.
"""
