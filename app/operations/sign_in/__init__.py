"""Sign-in: sessions, passwords, second factors, passkeys, known browsers, and what actors may do to users."""
