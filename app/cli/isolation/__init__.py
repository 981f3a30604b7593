"""The isolation check: one organization attacks another over HTTP, on the living installation, and reports."""
