"""Devices without a browser: what they ask for, and what people decide about it elsewhere (RFC 8628)."""
