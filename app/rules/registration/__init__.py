"""What a client may say of itself, and what its secrets are like."""
