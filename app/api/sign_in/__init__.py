"""Second factors of users."""
