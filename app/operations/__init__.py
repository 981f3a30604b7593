"""Operations do one thing for an actor and own the transaction; the only place with SQL."""
