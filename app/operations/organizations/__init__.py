"""Create organizations, settings, instance limits, roles and branding."""
