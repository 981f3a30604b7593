"""What was done, what was refused, and what was found where it should not be."""
