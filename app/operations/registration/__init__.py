"""Clients, their secrets, and the scopes they may ask for."""
