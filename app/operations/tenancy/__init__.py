"""Organizations, their settings, and the instance that holds them."""
