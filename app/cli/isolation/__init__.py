"""The isolation check: one organization attacks another over HTTP, on the running installation, and reports."""
