"""Evidence: what a change was, and how its record is kept from being changed."""
