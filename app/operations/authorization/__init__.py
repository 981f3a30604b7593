"""Authorization requests on their way to a code: checked, stored, pushed, signed, answered."""
