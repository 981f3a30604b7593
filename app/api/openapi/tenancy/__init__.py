"""Organizations, their settings and roles, and the instance."""
