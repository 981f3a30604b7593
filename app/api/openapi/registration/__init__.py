"""Clients, their secrets, and the resources that they ask tokens for."""
