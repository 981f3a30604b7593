"""What people allowed clients: the list of it, its end, and what administrators decide about clients."""
