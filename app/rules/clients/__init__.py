"""Clients: secrets, APIs and scopes, self-registration, client authentication."""
