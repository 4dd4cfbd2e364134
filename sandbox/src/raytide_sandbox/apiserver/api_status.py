"""Errors of the embedded API server, as Kubernetes Status objects.

`ApiStatusError` is an exception with code, reason, message, details and causes. The functions below build the usual errors
in the wording of a real API server, because clients and users read it. Raised and caught by the store, the routes and
the sandbox's controllers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """An error of one field: a dotted path, a text such as `Invalid value: 5: must be …`, and the CauseType."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class ApiStatusError(Exception):
    """A response other than success; `body()` is the Status object to send."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Json = {key: value for key, value in details.items() if value not in (None, "")}
        self.retry_after_s: int = self.details.get("retryAfterSeconds", 0)

    def named(self, resource: str) -> "ApiStatusError":
        """Reword for the group in the request, for a kind that two groups serve (events); changes and returns self."""
        plural, _, group = resource.partition(".")
        if self.details.get("kind") == plural and group:
            self.message = self.message.replace(f'{plural} "', f'{resource} "', 1)
            self.details["group"] = group
        return self

    def body(self) -> Json:
        """The Status object as JSON values."""
        status: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = self.details
        return status


def success(code: int = 0, **details: Any) -> Json:
    """A Status object of success."""
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if code:
        status["code"] = code
    if details:
        status["details"] = details
    return status


def not_found(resource: str, name: str) -> ApiStatusError:
    """404 for an object; `resource` is plural or plural.group."""
    plural, _, group = resource.partition(".")
    return ApiStatusError(404, "NotFound", f'{resource} "{name}" not found', name=name, group=group, kind=plural)


def unknown_path() -> ApiStatusError:
    """404 for a path that is not served."""
    return ApiStatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: str, name: str) -> ApiStatusError:
    """409 for a create of an existing object."""
    plural, _, group = resource.partition(".")
    return ApiStatusError(
        409, "AlreadyExists", f'{resource} "{name}" already exists', name=name, group=group, kind=plural
    )


def conflict(resource: str, name: str, why: str) -> ApiStatusError:
    """409 for an update or delete whose precondition or resourceVersion does not hold."""
    plural, _, group = resource.partition(".")
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return ApiStatusError(409, "Conflict", message, name=name, group=group, kind=plural)


def modified(resource: str, name: str) -> ApiStatusError:
    """409 for a stale resourceVersion."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def forbidden(resource: str, name: str, why: str, **details: Any) -> ApiStatusError:
    """403 from admission."""
    plural, _, group = resource.partition(".")
    message = f'{resource} "{name}" is forbidden: {why}'
    return ApiStatusError(403, "Forbidden", message, name=name, group=group, kind=plural, **details)


def bad_request(message: str) -> ApiStatusError:
    """400."""
    return ApiStatusError(400, "BadRequest", message)


def not_implemented(what: str) -> ApiStatusError:
    """501 for a feature of a real API server that this one lacks."""
    return ApiStatusError(501, "NotImplemented", f"the sandbox's API server does not implement {what}")


def invalid(kind: str, name: str, causes: Iterable[Cause], *, group: str = "") -> ApiStatusError:
    """422 in a real server's words: `RayCluster.ray.io "x" is invalid: spec.foo: Invalid value: …`."""
    faults = list(causes)
    texts = list(dict.fromkeys(f"{fault.field}: {fault.message}" if fault.field else fault.message for fault in faults))
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    qualified = f"{kind}.{group}" if group else kind
    listed = [{"reason": fault.reason, "message": fault.message, "field": fault.field} for fault in faults]
    message = f'{qualified} "{name}" is invalid: {text}'
    return ApiStatusError(422, "Invalid", message, name=name, group=group, kind=kind, causes=listed)


def too_large_version(asked: int, current: int) -> ApiStatusError:
    """504 for a resourceVersion that the store has not reached."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    text = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiStatusError(504, "Timeout", text, causes=[cause], retryAfterSeconds=1)


def expired(asked: int, oldest: int) -> ApiStatusError:
    """410 for a resourceVersion whose later changes are no longer all stored."""
    return ApiStatusError(410, "Expired", f"too old resource version: {asked} ({oldest})")
