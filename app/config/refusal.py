"""The exception that ends a start with an unsafe configuration."""

from __future__ import annotations

EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h


class UnsafeConfiguration(SystemExit):
    """Ends the start with exit status 78; the message says what to type."""

    def __init__(self, message: str) -> None:
        super().__init__(EXIT_CONFIGURATION)
        self.message = message

    def __str__(self) -> str:
        return self.message
