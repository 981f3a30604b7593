"""What proves a client or a key: assertions and DPoP proofs."""
