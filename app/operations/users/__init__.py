"""Users: accounts, invitations, email verification, password resets and imports."""
