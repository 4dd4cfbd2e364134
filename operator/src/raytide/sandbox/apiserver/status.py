"""How does the embedded API server say no?

One exception, `ApiStatus`, that carries what a Kubernetes `Status` object carries: code, reason, message, details and
causes. The functions below build the usual refusals with the wording of a real API server, because clients and people
read that text. It never does anything; the store, the routes and the sandbox's controllers raise and catch it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cause:
    """One field's fault: a dotted path, a text such as `Invalid value: 5: must be …`, and the CauseType."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class ApiStatus(Exception):  # noqa: N818 - an answer of the API, not an error of ours
    """An answer other than success; `body()` is the Status object to send."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: Json = {key: value for key, value in details.items() if value not in (None, "")}
        self.retry_after_s: int = self.details.get("retryAfterSeconds", 0)

    def named(self, resource: str) -> "ApiStatus":
        """The same about one object of a kind that two groups show, in the words of the group that was asked."""
        plural, _, group = resource.partition(".")
        if self.details.get("kind") == plural and group:
            self.message = self.message.replace(f'{plural} "', f'{resource} "', 1)
            self.details["group"] = group
        return self

    def body(self) -> Json:
        """The Status object as clients expect it."""
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
    """A Status object that says yes."""
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if code:
        status["code"] = code
    if details:
        status["details"] = details
    return status


def not_found(resource: str, name: str) -> ApiStatus:
    """404 for an object; `resource` is plural or plural.group."""
    plural, _, group = resource.partition(".")
    return ApiStatus(404, "NotFound", f'{resource} "{name}" not found', name=name, group=group, kind=plural)


def unknown_path() -> ApiStatus:
    """404 for a path nobody serves."""
    return ApiStatus(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: str, name: str) -> ApiStatus:
    """409 on create."""
    plural, _, group = resource.partition(".")
    return ApiStatus(409, "AlreadyExists", f'{resource} "{name}" already exists', name=name, group=group, kind=plural)


def conflict(resource: str, name: str, why: str) -> ApiStatus:
    """409 on update or delete: a precondition or the resourceVersion does not hold."""
    plural, _, group = resource.partition(".")
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return ApiStatus(409, "Conflict", message, name=name, group=group, kind=plural)


def modified(resource: str, name: str) -> ApiStatus:
    """409 for a stale resourceVersion."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def forbidden(resource: str, name: str, why: str, **details: Any) -> ApiStatus:
    """403 by admission."""
    plural, _, group = resource.partition(".")
    message = f'{resource} "{name}" is forbidden: {why}'
    return ApiStatus(403, "Forbidden", message, name=name, group=group, kind=plural, **details)


def bad_request(message: str) -> ApiStatus:
    """400."""
    return ApiStatus(400, "BadRequest", message)


def not_implemented(what: str) -> ApiStatus:
    """501: true for everything a real API server can do and this one does not pretend to."""
    return ApiStatus(501, "NotImplemented", f"the sandbox's API server does not implement {what}")


def invalid(kind: str, name: str, causes: Iterable[Cause], *, group: str = "") -> ApiStatus:
    """422 in the words of a real server: `RayCluster.ray.io "x" is invalid: spec.foo: Invalid value: …`."""
    faults = list(causes)
    texts = list(dict.fromkeys(f"{fault.field}: {fault.message}" if fault.field else fault.message for fault in faults))
    text = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    qualified = f"{kind}.{group}" if group else kind
    listed = [{"reason": fault.reason, "message": fault.message, "field": fault.field} for fault in faults]
    message = f'{qualified} "{name}" is invalid: {text}'
    return ApiStatus(422, "Invalid", message, name=name, group=group, kind=kind, causes=listed)


def too_large_version(asked: int, current: int) -> ApiStatus:
    """504: somebody asks for a state that is not there yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    text = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiStatus(504, "Timeout", text, causes=[cause], retryAfterSeconds=1)


def expired(asked: int, oldest: int) -> ApiStatus:
    """410: the events after `asked` are no longer all there."""
    return ApiStatus(410, "Expired", f"too old resource version: {asked} ({oldest})")
