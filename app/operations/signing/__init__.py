"""Signing keys as their organization's people see them: made, rotated by themselves or by hand, removed."""
