"""Clients, their credentials, APIs (resources) with their scopes, and initial access tokens."""
