"""Compare Gatehouse with the fastest possible service on this machine: ``python -m tests.bench``."""
