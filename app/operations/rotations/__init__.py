"""Assisted rotation to its end: progress from real use, steering it, and a word before the old secret ends in use."""
