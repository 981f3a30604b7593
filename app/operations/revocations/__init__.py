"""Wider revocation: by grant, client, secret, user, sign-in or whole organization, and by time."""
