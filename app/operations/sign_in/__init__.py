"""Sign-in: sessions, passwords, second factors, passkeys, known browsers."""
