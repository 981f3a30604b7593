"""Clients that nobody here registers: by dynamic registration (RFC 7591) or by a document under their own address."""
