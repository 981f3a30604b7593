"""Domain rules over plain values: no Flask, no SQLAlchemy, no Authlib, no clock."""
