"""OpenAPI: reports of leaked secrets."""

from __future__ import annotations

from app.api.openapi.parts import Schema, answer, closed, operation, path_item, ref, success, text
from app.rules.audit.leaked_secrets import MAX_REPORTS

SCHEMAS: Schema = {
    "LeakReport": {
        "type": "object",
        "description": "As secret scanners send it; further properties are ignored.",
        "required": ["token"],
        "properties": {
            "token": text("The string that was found, whole.", minLength=1),
            "type": text("What the finder calls it."),
            "url": text("Where it was found; its query is not kept."),
            "source": text("In what it was found, such as `commit`."),
        },
    },
    "LeakReportsTaken": closed(
        {
            "accepted": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_REPORTS,
                "description": "As many as were sent.",
            }
        }
    ),
}
PATHS: Schema = {
    "/leak-reports": path_item(
        (),
        post=operation(
            "reportLeaks",
            "Report leaked secrets",
            tag="Leak reports",
            scope=None,
            description="Whatever of the strings is a secret or token of this service is dead before the answer, and "
            "its owner and the administrators are told. Nobody needs to prove more than that they hold it: a holder "
            "can end it and nothing else. The answer is the same for every string.",
            body={
                "oneOf": [
                    {"type": "array", "minItems": 1, "maxItems": MAX_REPORTS, "items": ref("LeakReport")},
                    ref("LeakReport"),
                ]
            },
            answers={"202": answer("They were taken.", success(ref("LeakReportsTaken")))},
            security=[{}],
            is_always_there=True,
        ),
    ),
}
