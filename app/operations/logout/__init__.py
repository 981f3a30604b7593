"""Logout: a client asks for it (RP-Initiated Logout 1.0), and clients hear of it (Back-Channel Logout 1.0)."""
