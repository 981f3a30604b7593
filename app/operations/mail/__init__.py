"""Mail to people: written in the unit of what it tells of, sent by the outbox's dispatcher."""
