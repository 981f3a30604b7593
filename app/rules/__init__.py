"""Rules decide from plain values: no Flask, no SQLAlchemy, no Authlib, no clock."""
