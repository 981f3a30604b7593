"""Sign-in safety: who guesses is slowed down, and who has signed in before is not locked out by it."""
