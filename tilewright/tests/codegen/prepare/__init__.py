"""Tests of codegen.prepare: the steps before emission."""
