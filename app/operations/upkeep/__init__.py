"""What keeps an installation healthy: the janitor, the doctor, the demo."""
