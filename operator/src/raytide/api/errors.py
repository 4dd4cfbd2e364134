"""Errors of API calls, one class per way to handle them.

*Rejected*: the API server rejected the request; a condition and an event report it, and the retry is slow.
*Unavailable*: no response, or one that asks to retry later; the caller backs off without an event. Any other exception
is a bug and keeps its traceback. Raised by `kube/client`, handled by the executor and the work queue (architecture §6).
"""


class ApiStatusError(Exception):
    """The API server rejected the request (400, 403, 404, 405, 409, 413, 415, 422, …).

    `reason` is the Status reason (`AlreadyExists`, `Conflict`, `Forbidden`, `Invalid`, `NotFound`, …).
    """

    def __init__(self, status: int, reason: str, message: str, *, causes: tuple[str, ...] = ()) -> None:
        super().__init__(message or reason)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes

    @property
    def is_not_found(self) -> bool:
        """True for 404: the object, its namespace or its kind does not exist."""
        return self.status == 404

    @property
    def is_already_exists(self) -> bool:
        """True only for 409 with reason AlreadyExists; a Conflict is something else (D15)."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_namespace_terminating(self) -> bool:
        """True when a create failed because the namespace is terminating: the pass ends without an event."""
        return self.status == 403 and "NamespaceTerminating" in self.causes


class ApiUnavailableError(Exception):
    """No response, or one that asks to retry later (time-out, connection lost, 429, 5xx).

    `retry_after_s` is the delay that the server asked for, if any. `is_outcome_unknown`: a write may have taken effect,
    because the request may have reached the server before the connection was lost or the call timed out. `is_answer`:
    the server did respond. `is_throttled`: it responded 429.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        is_outcome_unknown: bool = False,
        is_answer: bool = False,
        is_throttled: bool = False,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.is_outcome_unknown = is_outcome_unknown
        self.is_answer = is_answer
        self.is_throttled = is_throttled


class UnauthorizedError(ApiUnavailableError):
    """401: the API server does not accept the credentials, which may be renewed at any time."""
