"""An independent tester for SCIM, with resources whose generated values this service accepts."""

from __future__ import annotations

from typing import Annotated
from uuid import uuid4

from pydantic import Field
from scim2_client.engines.wsgi import WSGISCIMClient
from scim2_models import URN, Required, ScimProvider, Uniqueness
from scim2_tester import Status, check_server

from app.scim import resources
from tests.scim.conftest import Directory

# Each value is unique, and one that the service accepts: schemas cannot say what an email or a time zone is.
EMAILS = [f"{uuid4()}@acme.example" for _ in range(1000)]


class Email(resources.Value):
    """An email. One is stored, for work."""

    value: str | None = Field(None, examples=EMAILS)
    type: str | None = Field(None, examples=["work"])
    primary: bool | None = Field(None, examples=[True])


class Phone(resources.Value):
    """A phone number. One is stored, for work."""

    value: str | None = Field(None, examples=["+41446681800", "+14255550123"])
    type: str | None = Field(None, examples=["work"])
    primary: bool | None = Field(None, examples=[True])


class Address(resources.Address):
    """An address. One is stored, for work."""

    type: str | None = Field(None, examples=["work"])
    primary: bool | None = Field(None, examples=[True])


class User(resources.User):
    """A user with values that are valid. Nobody can be without an email, or neither active nor disabled."""

    __schema__ = URN("urn:ietf:params:scim:schemas:core:2.0:User")

    user_name: Annotated[str | None, Uniqueness.server, Required.true] = Field(None, examples=EMAILS)
    profile_url: str | None = Field(
        None, examples=["https://acme.example/people/a", "https://acme.example/b"]
    )
    locale: str | None = Field(None, examples=["de-CH", "en"])
    timezone: str | None = Field(None, examples=["Europe/Zurich", "America/New_York"])
    active: Annotated[bool | None, Required.true] = None
    emails: Annotated[list[Email] | None, Required.true] = None
    phone_numbers: list[Phone] | None = None
    addresses: list[Address] | None = None


def find_problems(directory: Directory) -> tuple[list[str], int]:
    """Return what the tester says is wrong, and how many checks it made."""
    client = WSGISCIMClient(
        directory.app.wsgi_app,
        base_url=f"http://localhost{directory.path}",
        environ={"HTTP_AUTHORIZATION": f"Bearer {directory.token}"},
        provider=ScimProvider(models=[User, resources.Enterprise, resources.Group]),
    )
    results = check_server(client)
    wrong = [
        f"{result.title}: {result.reason}"
        for result in results
        if result.status not in {Status.SUCCESS, Status.SKIPPED}
    ]
    return wrong, len(results)
