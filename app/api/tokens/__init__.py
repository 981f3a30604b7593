"""Access tokens and their revocation."""
