"""Users, how they come in, and what they prove themselves with."""
