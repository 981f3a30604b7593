"""Organizations, their settings, roles and administrators, and the limits of the instance."""
