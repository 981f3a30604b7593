"""Organizations' names and settings."""
