"""One file a grant; each port of Authlib calls one operation."""
