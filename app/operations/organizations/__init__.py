"""Organizations: creation, settings, instance limits, roles, branding."""
