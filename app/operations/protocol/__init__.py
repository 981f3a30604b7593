"""Requests, codes, grants, tokens and keys: what the OAuth wire stands on."""
