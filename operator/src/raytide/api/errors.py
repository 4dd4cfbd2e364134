"""What can go wrong with a call, in the three kinds that need three answers?

*Refused*: the API or the spec says no; a condition and an event tell the user, the retry is slow. *Unavailable*: nobody
answered, or said "later"; back off and stay quiet. Everything else is a bug and keeps its traceback. Raised by
`kube/client`, understood by the executor and the work queue (architecture §6).
"""


class Refused(Exception):  # noqa: N818 - an answer, not an error of ours
    """The API answered no (400, 403, 404, 405, 409, 413, 415, 422, …).

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
        """True for 404: the object, its namespace or its kind is not there."""
        return self.status == 404

    @property
    def is_already_exists(self) -> bool:
        """True only for 409 with reason AlreadyExists; a Conflict is something else (D15)."""
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def is_namespace_terminating(self) -> bool:
        """True when nothing can be created any more because the namespace is going: the pass ends quietly."""
        return self.status == 403 and "NamespaceTerminating" in self.causes


class Unavailable(Exception):  # noqa: N818 - an answer, not an error of ours
    """Nobody answered, or the answer was "later" (time-out, connection lost, 429, 5xx).

    `retry_after_s` is what the server asked for, if it did. `is_outcome_unknown` says that a write may have happened:
    the request may have reached the server before the connection or our patience ended. `is_answer` says that the server
    did speak.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float | None = None,
        is_outcome_unknown: bool = False,
        is_answer: bool = False,
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.is_outcome_unknown = is_outcome_unknown
        self.is_answer = is_answer
