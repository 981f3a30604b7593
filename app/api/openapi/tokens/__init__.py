"""Grants, tokens and consents, how they are ended, and the keys that sign."""
