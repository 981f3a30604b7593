"""An organization as a file: taken out of one installation, and brought into another or back."""
