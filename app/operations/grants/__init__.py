"""Grants, from which all tokens of a user hang, and who may see and end them."""
