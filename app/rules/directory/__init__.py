"""Snapshots of clients and organizations, users by id, permissions."""
