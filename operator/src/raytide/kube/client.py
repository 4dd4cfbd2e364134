"""Kubernetes API client: single calls with deadlines.

Takes resources, keys and JSON objects and returns JSON objects over any `kube/transport`. Every call has a deadline and
ends with an answer, `ApiStatusError` or `ApiUnavailableError` (api/errors); reads are retried a few times, writes never. Every delete
carries the expected uid (RM:I5), and a gate limits the duration of every write (D10). Used by every controller, the
executor and the event recorder.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final, TypeAlias, TypeVar, cast

import msgspec

from raytide.api.constants import OPERATOR
from raytide.api.errors import ApiStatusError, ApiUnavailableError, UnauthorizedError
from raytide.api.meta import PODS, Key, Manifest, Resource
from raytide.kube.transport import Response, StreamStatusError, TooLargeError, Transport
from raytide.runtime.clock import Clock

T = TypeVar("T")

WriteGate: TypeAlias = Callable[[], float]
"""Seconds that a write starting now may take; zero or less: no write may start (D10)."""

FIELD_MANAGER: Final = OPERATOR
PAGE_SIZE: Final = 500
LARGE_PAGE_BYTES: Final = 4 << 20
"""After a page of this many bytes no page has more objects."""
READ_ATTEMPTS: Final = 3
LONGEST_RETRY_AFTER_S: Final = 300.0
GARBAGE: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""Exceptions of decoding; bytes that are not UTF-8 raise their own."""
LONGEST_WAIT_S: Final = 5.0
"""Longest Retry-After that a read waits for; longer ones are left to the work queue."""


class PatchKind(Enum):
    """Format of a PATCH body; the value is the content type."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class _Cause(msgspec.Struct, gc=False):
    reason: str = ""


class _Details(msgspec.Struct, gc=False):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct, gc=False):
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class _PageMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(msgspec.Struct, gc=False):
    metadata: _PageMeta
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: undecoded items, and the resourceVersion of the list."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str


def user_agent(version: str) -> str:
    """User-Agent of our requests."""
    return f"raytide/{version}"


def status_error(response: Response) -> ApiStatusError:
    """Build `ApiStatusError` from the Status in the body, or from the HTTP status when the body is no Status."""
    try:
        status = msgspec.json.decode(response.body, type=_Status)
    except GARBAGE:
        status = _Status(message=response.body[:200].decode(errors="replace"))
    causes = (status.details.causes if status.details else None) or ()
    return ApiStatusError(
        response.status,
        status.reason or _phrase(response.status),
        status.message,
        causes=tuple(cause.reason for cause in causes),
    )


def retry_after_s(response: Response) -> float | None:
    """The Retry-After header in seconds, if it is a number; at most LONGEST_RETRY_AFTER_S."""
    header = response.headers.get("retry-after", "")
    return min(float(header), LONGEST_RETRY_AFTER_S) if header.isascii() and header.isdigit() else None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.replace(" ", "")
    except ValueError:
        return f"HTTP{status}"


def decode_object(body: bytes) -> Manifest:
    """Decode the whole body; callers that need few fields use their own decoder, at a tenth of the cost."""
    decoded = msgspec.json.decode(body)
    if not isinstance(decoded, dict):
        raise msgspec.ValidationError("not a JSON object")
    return decoded


def _decoded(response: Response, decode: Callable[[bytes], T]) -> T:
    try:
        return decode(response.body)
    except GARBAGE as error:
        raise ApiUnavailableError(f"the response cannot be decoded: {error}", is_outcome_unknown=True) from error


class Client:
    """Single calls to one API server.

    - `get` returns None for a missing object; other rejections are `ApiStatusError` with the API server's reason and message.
    - 429, 5xx, 401 and transport failures are `ApiUnavailableError`; `retry_after_s` is the server's Retry-After.
    - Reads are tried up to three times on `ApiUnavailableError`, within the call's deadline; writes are sent once.
    - 429 and 401 mean that a write had no effect; after a 5xx its outcome is unknown as it may have reached etcd.
    - Every delete carries the uid as a precondition.
    - Lists have pages of 500 objects, fewer where objects are large: the transport bounds the size of a page. An
      expired continue token is `ApiStatusError` with status 410: start a new list.
    - Every write asks the gate: it gets min(`timeout_s`, what the gate grants), locally and as `?timeout=`.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock,
        version: str = "dev",
        timeout_s: float = 10.0,
        write_gate: WriteGate | None = None,
    ) -> None:
        self.transport = transport
        self._clock = clock
        self._timeout_s = timeout_s
        self._write_gate = write_gate
        self._outcome_unknown_until = float("-inf")
        self._headers = {"accept": "application/json", "user-agent": user_agent(version)}

    def unanswered_s(self) -> float:
        """Seconds until every unanswered write has surely been carried out or dropped; 0: none is open.

        A request that was cancelled or lost here may still be carried out within its `?timeout=`.
        """
        return max(0.0, self._outcome_unknown_until - self._clock.boottime())

    async def get(self, resource: Resource, key: Key) -> Manifest | None:
        """Return the object, or None if it does not exist."""
        try:
            return _decoded(await self._read(resource.path(key.namespace, key.name)), decode_object)
        except ApiStatusError as error:
            if error.is_not_found:
                return None
            raise

    async def serves(self, group: str) -> bool:
        """Whether the API server has this API group; discovery is open to every authenticated user."""
        try:
            await self._read(f"/apis/{group}")
        except ApiStatusError as error:
            if error.is_not_found:
                return False
            raise
        return True

    async def pod_log(
        self, key: Key, container: str, *, tail_lines: int, limit_bytes: int, is_previous: bool = False
    ) -> bytes:
        """The last lines of a container's log, or of its previous instance's; of more than `limit_bytes` the first bytes.

        Rejections, such as of a container that has not started, are `ApiStatusError`.
        """
        query = {"container": container, "tailLines": str(tail_lines), "limitBytes": str(limit_bytes)}
        if is_previous:
            query["previous"] = "true"
        return (await self._read(PODS.path(key.namespace, key.name, "log"), query=query)).body

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        """POST the object into its namespace; returns it as stored."""
        return await self.create_and_decode(decode_object, resource, manifest)

    async def create_and_decode(self, decode: Callable[[bytes], T], resource: Resource, manifest: Manifest) -> T:
        """Like `create`, with the response body decoded by `decode`."""
        path = resource.path(manifest["metadata"].get("namespace"))
        return await self._write(decode, "POST", path, body=manifest, query={"fieldManager": FIELD_MANAGER})

    async def replace(self, resource: Resource, key: Key, manifest: Manifest) -> Manifest:
        """PUT the whole object; rejected with Conflict unless it still has the resourceVersion in `manifest`."""
        path = resource.path(key.namespace, key.name)
        return await self._write(decode_object, "PUT", path, body=manifest, query={"fieldManager": FIELD_MANAGER})

    async def delete(self, resource: Resource, key: Key, uid: str, *, grace_period_s: int | None = None) -> Manifest:
        """DELETE the object with this uid only; returns the object (terminating) or a Status (gone)."""
        return await self.delete_and_decode(decode_object, resource, key, uid, grace_period_s=grace_period_s)

    async def delete_and_decode(
        self,
        decode: Callable[[bytes], T],
        resource: Resource,
        key: Key,
        uid: str,
        *,
        grace_period_s: int | None = None,
    ) -> T:
        """Like `delete`, the uid as precondition included; the response body is decoded by `decode`."""
        body: Manifest = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        if grace_period_s is not None:
            body["gracePeriodSeconds"] = grace_period_s
        return await self._write(decode, "DELETE", resource.path(key.namespace, key.name), body=body)

    async def patch(
        self,
        resource: Resource,
        key: Key,
        body: object,
        *,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str | None = None,
        field_manager: str = FIELD_MANAGER,
        is_forced: bool = False,
    ) -> Manifest:
        """PATCH the object; `is_forced` takes fields over from other managers and is for `PatchKind.APPLY` only."""
        query = {"fieldManager": field_manager}
        if is_forced:
            query["force"] = "true"
        path = resource.path(key.namespace, key.name, subresource)
        return await self._write(decode_object, "PATCH", path, body=body, query=query, content_type=kind.value)

    async def patch_status(self, resource: Resource, key: Key, body: object) -> Manifest:
        """Merge-patch the status subresource; a resourceVersion in `metadata` guards against other objects (D8).

        A uid is no guard: the status endpoint of a custom resource ignores it.
        """
        return await self.patch(resource, key, body, subresource="status")

    async def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = ""
    ) -> AsyncIterator[Manifest]:
        """Yield every object decoded, page by page."""
        async for page in self.pages(resource, namespace, label_selector=label_selector):
            for item in page.items:
                yield msgspec.json.decode(item)

    async def pages(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = PAGE_SIZE,
    ) -> AsyncIterator[Page]:
        """Yield every page with undecoded items. `ApiStatusError` with status 410 when the list expired meanwhile."""
        query = {"limit": str(page_size)}
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        while True:
            body, limit = await self._page(resource.path(namespace), query)
            try:
                page = msgspec.json.decode(body, type=_Page)
            except GARBAGE as error:
                raise ApiUnavailableError(f"the response to a list request cannot be decoded: {error}") from error
            more = page.metadata.continue_
            query["limit"] = str(min(page_size, limit if len(body) > LARGE_PAGE_BYTES else 2 * limit))
            query["continue"] = more
            yield Page(tuple(page.items or ()), page.metadata.resource_version)
            if not more:
                return
            del body, page  # free the memory before the next page is read

    async def _page(self, path: str, query: Mapping[str, str]) -> tuple[bytes, int]:
        """One page and its object limit; smaller than requested if the answer would be too large."""
        limit = int(query["limit"])
        while True:
            try:
                return (await self._read(path, query={**query, "limit": str(limit)})).body, limit
            except TooLargeError:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)

    async def watch(
        self, resource: Resource, namespace: str | None = None, *, query: Mapping[str, str], silence_s: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a watch until the server closes it."""
        chunks = self.transport.stream(
            resource.path(namespace), query={**query, "watch": "1"}, headers=self._headers, silence_s=silence_s
        )
        async with aclosing(cast("AsyncGenerator[bytes, None]", chunks)):
            try:
                async for chunk in chunks:
                    yield chunk
            except StreamStatusError as error:
                _accept(error.response)
                raise ApiUnavailableError(
                    f"the watch request was answered with HTTP status {error.response.status}"
                ) from error

    async def _read(self, path: str, *, query: Mapping[str, str] | None = None) -> Response:
        """GET, retried on `ApiUnavailableError` until the deadline of the whole call."""
        ends_at = self._clock.monotonic() + self._timeout_s
        for attempt in range(1, READ_ATTEMPTS + 1):
            left_s = ends_at - self._clock.monotonic()
            try:
                response = await self.transport.request(
                    "GET", path, query=query, headers=self._headers, timeout_s=max(left_s, 0.001)
                )
                return _accept(response)
            except TooLargeError:
                raise
            except ApiUnavailableError as error:
                wait_s = error.retry_after_s if error.retry_after_s is not None else 0.1 * 2**attempt
                left_s = ends_at - self._clock.monotonic()
                if attempt == READ_ATTEMPTS or wait_s > min(left_s, LONGEST_WAIT_S):
                    error.is_outcome_unknown = False  # a read has no outcome
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")

    async def _write(
        self,
        decode: Callable[[bytes], T],
        method: str,
        path: str,
        *,
        body: object,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> T:
        """Send once, within the time that the gate grants; returns the response body decoded by `decode`."""
        content = msgspec.json.encode(body)
        timeout_s = self._granted_s()  # last: no time must pass between the gate and sending
        ends_at = self._clock.boottime() + timeout_s
        try:
            response = await self.transport.request(
                method,
                path,
                query={**(query or {}), "timeout": f"{timeout_s:.3f}s"},
                headers={**self._headers, "content-type": content_type},
                body=content,
                timeout_s=timeout_s,
            )
            return _decoded(_accept(response), decode)
        except asyncio.CancelledError:
            self._outcome_unknown_until = max(self._outcome_unknown_until, ends_at)
            raise
        except ApiUnavailableError as error:
            if error.is_outcome_unknown:
                self._outcome_unknown_until = max(self._outcome_unknown_until, ends_at)
            raise

    def _granted_s(self) -> float:
        if self._write_gate is None:
            return self._timeout_s
        granted_s = min(self._timeout_s, self._write_gate())
        if granted_s <= 0:
            raise ApiUnavailableError("request not sent: the leader election lease is not held or about to expire")
        return granted_s


def _accept(response: Response) -> Response:
    """Return a successful response; otherwise raise `ApiStatusError` or `ApiUnavailableError`."""
    status = response.status
    if 200 <= status < 300:
        return response
    if status == 429 or status >= 500:
        error = status_error(response)
        raise ApiUnavailableError(
            f"{status} {error.reason}: {error.message}",
            retry_after_s=retry_after_s(response),
            is_outcome_unknown=status != 429,
            is_answer=True,
            is_throttled=status == 429,
        )
    if status == 401:
        raise UnauthorizedError("401 Unauthorized: the API server does not accept the credentials", is_answer=True)
    raise status_error(response)
