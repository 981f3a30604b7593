"""What tokens hold, how they are issued, exchanged, looked at and revoked."""
