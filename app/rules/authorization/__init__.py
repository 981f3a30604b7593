"""What an authorization request may say, and what follows from it."""
