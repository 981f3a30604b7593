"""The OAuth wire and the pages between."""
