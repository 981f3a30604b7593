"""Tokens: issue, refresh, exchange, introspect, list, revoke."""
