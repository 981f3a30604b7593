"""TOTP codes, compared with another implementation of RFC 6238, and recovery codes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyotp

from app.rules.sign_in import second_factors
from app.web.qr_codes import qr_svg
from tests.support.cases import each

NOW = datetime(2026, 11, 21, 12, 0, 10, tzinfo=UTC)
STEP = int(NOW.timestamp()) // 30


@each(
    ("second", "code"),
    [
        (59, "287082"),
        (1111111109, "081804"),
        (1111111111, "050471"),
        (1234567890, "005924"),
        (2000000000, "279037"),
        (20000000000, "353130"),
    ],
)
def test_codes_match_rfc_6238(second: int, code: str) -> None:
    """RFC 6238 appendix B, the last six digits."""
    assert second_factors.totp_code(b"12345678901234567890", second // 30) == code


def test_other_implementation_reads_the_uri_and_shows_the_same_code() -> None:
    secret = second_factors.new_secret()
    address = second_factors.otpauth_uri(secret, issuer="Acme: & Sons", account="ada@acme.example")
    read = pyotp.parse_uri(address)
    assert isinstance(read, pyotp.TOTP)
    assert (read.issuer, read.name) == ("Acme  & Sons", "ada@acme.example")
    assert (read.interval, read.digits) == (30, 6)
    assert read.at(NOW) == second_factors.totp_code(secret, STEP)
    assert second_factors.format_secret(secret).replace(" ", "") == read.secret


@each(
    ("issuer", "account", "kept"),
    [
        ("Acme & Sons " * 8, "a" * 64 + "@" + "b" * 185 + ".test", 96),
        ("\N{GREEN APPLE}" * 100, "\N{GREEN APPLE}" * 60 + "@acme.example", 25),
    ],
)
def test_long_names_fit_into_a_qr_code(issuer: str, account: str, kept: int) -> None:
    address = second_factors.otpauth_uri(second_factors.new_secret(), issuer=issuer, account=account)
    assert pyotp.parse_uri(address).issuer == issuer[:kept]
    assert len(address) < 1200 and qr_svg(address)


@each(("offset", "counts"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)])
def test_adjacent_time_steps_are_accepted(offset: int, counts: bool) -> None:
    """MF-1: clocks may differ by one step."""
    secret = second_factors.new_secret()
    found = second_factors.matching_step(secret, second_factors.totp_code(secret, STEP + offset), NOW)
    assert found == (STEP + offset if counts else None)


@each("typed", ["", "12345", "1234567", "abcdef", "١٢٣٤٥٦", "123456\0", "-" * 400])
def test_malformed_code_does_not_match(typed: str) -> None:
    assert second_factors.matching_step(second_factors.new_secret(), typed, NOW) is None


def test_spaces_in_code_are_ignored() -> None:
    secret = second_factors.new_secret()
    code = second_factors.totp_code(secret, STEP)
    assert (
        second_factors.matching_step(secret, f" {code[:3]} {code[3:]} ", NOW + timedelta(seconds=1)) == STEP
    )


def test_recovery_code_has_enough_entropy() -> None:
    """MF-4: at least 112 bits, 24 characters out of 32."""
    made = {second_factors.new_recovery_code() for _ in range(200)}
    assert len(made) == 200
    assert {len(code.replace("-", "")) for code in made} == {24}
    letters = set("".join(made)) - {"-"}
    assert len(letters) == 32 and not letters & set("ilou")


def test_recovery_code_is_normalized() -> None:
    code = second_factors.new_recovery_code()
    plain = code.replace("-", "")
    for typed in (
        plain,
        code.upper(),
        f"  {code.replace('-', ' ')} ",
        plain.replace("0", "O").replace("1", "l"),
    ):
        assert second_factors.normalize_recovery_code(typed) == plain
    for typed in ("", plain[:-1], f"{plain}a", "x" * 5000, f"{plain[:-1]}é"):
        assert second_factors.normalize_recovery_code(typed) is None
