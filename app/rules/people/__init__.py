"""Addresses, passwords, permissions and the limits of trying."""
