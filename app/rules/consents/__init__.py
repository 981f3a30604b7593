"""Rules of consent: how long it lasts, what it was given to, and whose it is to give."""
