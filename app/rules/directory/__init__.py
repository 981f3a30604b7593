"""Permissions and built-in roles."""
