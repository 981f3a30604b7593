"""How a start ends that must not go on."""

from __future__ import annotations

EXIT_CONFIGURATION = 78  # EX_CONFIG of sysexits.h


class UnsafeConfiguration(SystemExit):
    """The service must not start like this; the message says what to type. Exits with status 78."""

    def __init__(self, message: str) -> None:
        super().__init__(EXIT_CONFIGURATION)
        self.message = message

    def __str__(self) -> str:
        return self.message
