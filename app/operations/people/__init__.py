"""Who signs in, with which rights, and how they come and go."""
