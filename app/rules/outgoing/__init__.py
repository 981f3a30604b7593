"""Whom we speak to, and how often again."""
