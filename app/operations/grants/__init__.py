"""Grants and signing keys."""
