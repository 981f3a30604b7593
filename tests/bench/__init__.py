"""Measures Gatehouse against this machine's floor: ``python -m tests.bench``."""
