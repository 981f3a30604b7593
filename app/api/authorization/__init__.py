"""Consents of users, and requests of members for clients."""
