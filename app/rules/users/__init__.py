"""Users: accounts, invitations, email verification, password resets, imports."""
