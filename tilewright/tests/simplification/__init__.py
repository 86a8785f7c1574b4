"""Tests of the simplifier."""
