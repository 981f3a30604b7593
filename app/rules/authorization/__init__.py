"""Authorization requests, consents, codes, device codes."""
