"""What tokens look like, hold and may be used for."""
