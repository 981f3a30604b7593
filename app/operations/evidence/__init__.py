"""What developers are shown of requests that were refused."""
