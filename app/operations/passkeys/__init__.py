"""Passkeys: registered by their owners, used in place of a password or after it."""
