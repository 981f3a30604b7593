"""Leaks: a secret of ours that somebody found elsewhere is dead, and whoever it belongs to is told."""
