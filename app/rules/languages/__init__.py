"""Languages: the supported ones, the choice for a user, and messages, dates and durations in each."""
