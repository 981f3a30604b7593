"""Webhooks: an organization's endpoints hear of its events, signed, at least once, in no promised order."""
