"""People as administrators see them: listed, made, changed, deleted."""
