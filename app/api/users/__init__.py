"""Users, invitations, imports of users, and self-registrations that await verification."""
