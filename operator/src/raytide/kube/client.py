"""How do we talk to a Kubernetes API, one call at a time?

Resources, keys and JSON objects go in, JSON objects come out, whatever carries the bytes (`kube/transport`). Every call
has a deadline and ends in one of three ways: an answer, `Refused` or `Unavailable` (api/errors); reads are repeated a
few times when the server says "later", writes never are. Every delete names the uid it means (RM:I5), and one gate
limits how long any write may take (D10). Called by every controller, the executor and the event recorder.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final, TypeAlias, TypeVar, cast

import msgspec

from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import Key, Manifest, Resource
from raytide.kube.transport import Response, StreamRefused, TooLarge, Transport
from raytide.runtime.clock import Clock

T = TypeVar("T")

WriteGate: TypeAlias = Callable[[], float]
"""How many seconds a write that starts now may take; zero or less: none may start (D10)."""

FIELD_MANAGER: Final = "raytide"
PAGE_SIZE: Final = 500
LARGE_PAGE_BYTES: Final = 4 << 20
"""A page of that many bytes is followed by none with more objects."""
READ_ATTEMPTS: Final = 3
LONGEST_RETRY_AFTER_S: Final = 300.0
GARBAGE: Final = (msgspec.DecodeError, UnicodeDecodeError)
"""What decoding raises: bytes that are no UTF-8 have an exception of their own."""
LONGEST_WAIT_S: Final = 5.0
"""A read waits no longer than this for a server that said "later"; the work queue knows how to wait longer."""


class PatchKind(Enum):
    """How the body of a PATCH is meant; the value is its content type."""

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
    """One piece of a list: the items undecoded, and the version the whole list has."""

    items: tuple[msgspec.Raw, ...]
    resource_version: str


def user_agent(version: str) -> str:
    """What the API server's audit log calls us."""
    return f"raytide/{version}"


def refusal(response: Response) -> Refused:
    """The API's own words, or the bare HTTP status when the body is not a Status."""
    try:
        status = msgspec.json.decode(response.body, type=_Status)
    except GARBAGE:
        status = _Status(message=response.body[:200].decode(errors="replace"))
    causes = (status.details.causes if status.details else None) or ()
    return Refused(
        response.status,
        status.reason or _phrase(response.status),
        status.message,
        causes=tuple(cause.reason for cause in causes),
    )


def retry_after_s(response: Response) -> float | None:
    """The server's Retry-After in seconds, if it sent a number; never more than LONGEST_RETRY_AFTER_S."""
    words = response.headers.get("retry-after", "")
    return min(float(words), LONGEST_RETRY_AFTER_S) if words.isascii() and words.isdigit() else None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.replace(" ", "")
    except ValueError:
        return f"HTTP{status}"


def as_object(body: bytes) -> Manifest:
    """The whole answer; who needs little of it reads it with a decoder of their own, at a tenth of the price."""
    decoded = msgspec.json.decode(body)
    if not isinstance(decoded, dict):
        raise msgspec.ValidationError("not a JSON object")
    return decoded


def _decoded(response: Response, read: Callable[[bytes], T]) -> T:
    try:
        return read(response.body)
    except GARBAGE as error:
        raise Unavailable(f"the answer cannot be read: {error}", is_outcome_unknown=True) from error


class Client:
    """Single calls to one API server.

    - `get` answers None for what is not there; every other no is `Refused` with the API's reason and message.
    - 429 and 5xx, and a transport that gave up, are `Unavailable`; `retry_after_s` is the server's own wish.
    - Reads are tried three times while the server says "later" and for at most the call's deadline; writes are sent once.
    - 429 and 401 mean that a write did not happen; any 5xx leaves it unknown, because etcd may have got it.
    - Every delete carries the uid as a precondition.
    - A list is read in pages of 500, and in smaller ones where objects are large: what one page takes is bounded by the
      transport, whatever tenants store. An expired continue token is `Refused` with status 410: begin anew.
    - Every write asks the gate: it gets min(`timeout_s`, what the gate grants), on our side and as `?timeout=`.
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
        self._in_doubt_until = float("-inf")
        self._headers = {"accept": "application/json", "user-agent": user_agent(version)}

    def unanswered_s(self) -> float:
        """Seconds until every write that was sent and not answered has surely been carried out or dropped; 0: none is open.

        A request that was cancelled or lost here may still be carried out within its `?timeout=`.
        """
        return max(0.0, self._in_doubt_until - self._clock.boottime())

    async def get(self, resource: Resource, key: Key) -> Manifest | None:
        """The object as it is now, or None."""
        try:
            return _decoded(await self._read(resource.path(key.namespace, key.name)), as_object)
        except Refused as refused:
            if refused.is_not_found:
                return None
            raise

    async def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        """POST it into the namespace it names; returns the object as stored."""
        return await self.create_as(as_object, resource, manifest)

    async def create_as(self, read: Callable[[bytes], T], resource: Resource, manifest: Manifest) -> T:
        """The same; returns what `read` makes of the object as stored."""
        path = resource.path(manifest["metadata"].get("namespace"))
        return await self._write(read, "POST", path, body=manifest, query={"fieldManager": FIELD_MANAGER})

    async def replace(self, resource: Resource, key: Key, manifest: Manifest) -> Manifest:
        """PUT the whole object; refused as a Conflict unless it still has the resourceVersion in `manifest`."""
        path = resource.path(key.namespace, key.name)
        return await self._write(as_object, "PUT", path, body=manifest, query={"fieldManager": FIELD_MANAGER})

    async def delete(self, resource: Resource, key: Key, uid: str, *, grace_period_s: int | None = None) -> Manifest:
        """DELETE that object and no other of the same name; returns the object (terminating) or a Status (gone)."""
        return await self.delete_as(as_object, resource, key, uid, grace_period_s=grace_period_s)

    async def delete_as(
        self,
        read: Callable[[bytes], T],
        resource: Resource,
        key: Key,
        uid: str,
        *,
        grace_period_s: int | None = None,
    ) -> T:
        """The same; returns what `read` makes of that object or Status."""
        body: Manifest = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": "Background",
        }
        if grace_period_s is not None:
            body["gracePeriodSeconds"] = grace_period_s
        return await self._write(read, "DELETE", resource.path(key.namespace, key.name), body=body)

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
        """PATCH it; `is_forced` takes fields over from other managers and is for `PatchKind.APPLY` only."""
        query = {"fieldManager": field_manager}
        if is_forced:
            query["force"] = "true"
        path = resource.path(key.namespace, key.name, subresource)
        return await self._write(as_object, "PATCH", path, body=body, query=query, content_type=kind.value)

    async def patch_status(self, resource: Resource, key: Key, body: object) -> Manifest:
        """Merge-patch the status subresource; a `metadata.resourceVersion` in the body guards against a namesake (D8).

        A uid does not: the status endpoint of a custom resource overlooks it.
        """
        return await self.patch(resource, key, body, subresource="status")

    async def list(
        self, resource: Resource, namespace: str | None = None, *, label_selector: str = ""
    ) -> AsyncIterator[Manifest]:
        """Every object, page by page, decoded."""
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
        """Every page, its items undecoded. `Refused` with status 410 when the list expired while we read it."""
        query = {"limit": str(page_size)}
        if label_selector:
            query["labelSelector"] = label_selector
        if field_selector:
            query["fieldSelector"] = field_selector
        while True:
            body, most = await self._page(resource.path(namespace), query)
            try:
                page = msgspec.json.decode(body, type=_Page)
            except GARBAGE as error:
                raise Unavailable(f"the list is not a list: {error}") from error
            more = page.metadata.continue_
            query["limit"] = str(min(page_size, most if len(body) > LARGE_PAGE_BYTES else 2 * most))
            query["continue"] = more
            yield Page(tuple(page.items or ()), page.metadata.resource_version)
            if not more:
                return
            del body, page  # the next page takes their place, not a place beside them

    async def _page(self, path: str, query: Mapping[str, str]) -> tuple[bytes, int]:
        """One page, and with how many objects at most; fewer than asked for where that would be too much to read."""
        most = int(query["limit"])
        while True:
            try:
                return (await self._read(path, query={**query, "limit": str(most)})).body, most
            except TooLarge:
                if most == 1:
                    raise
                most = max(1, most // 4)

    async def watch(
        self, resource: Resource, namespace: str | None = None, *, query: Mapping[str, str], silence_s: float
    ) -> AsyncGenerator[bytes, None]:
        """The bytes of a watch as they come, until the server closes it."""
        chunks = self.transport.stream(
            resource.path(namespace), query={**query, "watch": "1"}, headers=self._headers, silence_s=silence_s
        )
        async with aclosing(cast("AsyncGenerator[bytes, None]", chunks)):
            try:
                async for chunk in chunks:
                    yield chunk
            except StreamRefused as refused:
                _accept(refused.response)
                raise Unavailable(f"a watch was answered with {refused.response.status}") from refused

    async def _read(self, path: str, *, query: Mapping[str, str] | None = None) -> Response:
        """GET, again when told "later", until the deadline of the whole call."""
        ends_at = self._clock.monotonic() + self._timeout_s
        for attempt in range(1, READ_ATTEMPTS + 1):
            left_s = ends_at - self._clock.monotonic()
            try:
                response = await self.transport.request(
                    "GET", path, query=query, headers=self._headers, timeout_s=max(left_s, 0.001)
                )
                return _accept(response)
            except TooLarge:
                raise
            except Unavailable as trouble:
                wait_s = trouble.retry_after_s if trouble.retry_after_s is not None else 0.1 * 2**attempt
                left_s = ends_at - self._clock.monotonic()
                if attempt == READ_ATTEMPTS or wait_s > min(left_s, LONGEST_WAIT_S):
                    trouble.is_outcome_unknown = False  # a read has no outcome
                    raise
                await asyncio.sleep(wait_s)
        raise AssertionError("the last attempt returns or raises")

    async def _write(
        self,
        read: Callable[[bytes], T],
        method: str,
        path: str,
        *,
        body: object,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> T:
        """Send once, inside what the gate grants."""
        content = msgspec.json.encode(body)
        timeout_s = self._granted_s()  # last, so that nothing takes time between the gate and the sending
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
            return _decoded(_accept(response), read)
        except asyncio.CancelledError:
            self._in_doubt_until = max(self._in_doubt_until, ends_at)
            raise
        except Unavailable as trouble:
            if trouble.is_outcome_unknown:
                self._in_doubt_until = max(self._in_doubt_until, ends_at)
            raise

    def _granted_s(self) -> float:
        if self._write_gate is None:
            return self._timeout_s
        granted_s = min(self._timeout_s, self._write_gate())
        if granted_s <= 0:
            raise Unavailable("not allowed to write now: the lease is not safely held")
        return granted_s


def _accept(response: Response) -> Response:
    """The response itself if it is a yes; otherwise the right one of the two kinds of trouble."""
    status = response.status
    if 200 <= status < 300:
        return response
    if status == 429 or status >= 500:
        words = refusal(response)
        raise Unavailable(
            f"{status} {words.reason}: {words.message}",
            retry_after_s=retry_after_s(response),
            is_outcome_unknown=status != 429,
            is_answer=True,
        )
    if status == 401:
        raise Unavailable("401: the API server does not accept our credentials", is_answer=True)
    raise refusal(response)
