"""Reflector: lists and watches one collection and recovers from connection errors.

Lists, then watches from the version of the list; pages and changes go to a `Sink` in order. After any error the sink
becomes complete again: the reflector resumes where possible, relists where necessary, and backs off. It stores no
objects. Used by `kube/shared_watch` (D3).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from enum import Enum
from typing import Final, NamedTuple, Protocol, cast

import msgspec

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Resource
from raytide.kube.client import GARBAGE, PAGE_SIZE, Client, Page
from raytide.runtime.backoff import Backoff
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

SILENCE_S: Final = 60.0
SERVER_SHARE: Final = 55 / 60
"""timeoutSeconds of a watch per `silence_s`: it ends before it may seem silent, as bookmarks come once a minute."""
HEALTHY_S: Final = 10.0
"""A watch that lasted this long was healthy: backoff restarts after it."""
RESUMES: Final = 3
RELIST_INTERVAL_S: Final = 10.0
FORBIDDEN_S: Final = 30.0
"""Retry interval of an optional collection while it is forbidden (FD:REL-B)."""
EXPECTED_RETRIES: Final = 3
"""Consecutive failures up to which a 429 is logged as debug: setting up a new CRD's storage takes a second or two."""
LONGEST_WAIT_S: Final = 30.0
"""Longest wait, even with a longer `Retry-After`: after 75 s without activity the kubelet restarts us (FD:REL-E)."""
PORTION_BYTES: Final = 1 << 19
"""Bytes of a list that are decoded per event-loop step; most pages of ordinary objects take a few steps."""
UNAVAILABLE_BACKOFF_S: Final = 4.0
"""Longest wait while the server is unreachable: 15 s after an outage all is synced, 10 s of it for opening (SC:S18)."""


class ObjectMeta(msgspec.Struct, gc=False, rename="camel"):
    """The part of `metadata` that the reflector needs."""

    resource_version: str = ""
    name: str = ""
    namespace: str = ""


class AnyObject(msgspec.Struct, gc=False):
    """Any object, reduced to what the reflector needs."""

    metadata: ObjectMeta


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Error(msgspec.Struct, gc=False):
    code: int = 0
    reason: str = ""
    message: str = ""


class Sink(Protocol):
    """Receiver of the objects. Its methods do not await."""

    def begin(self) -> None:
        """A list begins: drop what was collected of an earlier, incomplete one."""

    def collect(self, items: Iterable[msgspec.Raw]) -> None:
        """Add a page of the list."""

    def replace(self) -> None:
        """The list is complete: replace all content by what was collected."""

    def clear(self) -> None:
        """The kind is not served: drop all content."""

    def change(self, kind: str, item: msgspec.Raw) -> str:
        """Apply ADDED, MODIFIED or DELETED; returns the object's version, raises one of `GARBAGE` if undecodable."""
        ...


class _RelistError(Exception):
    """The watch cannot be resumed."""


def version_number(version: str) -> int:
    """A resourceVersion as a number for comparisons; 0 if it is not numeric."""
    return int(version) if version.isascii() and version.isdigit() else 0


def _portions(items: Sequence[msgspec.Raw]) -> Iterator[Sequence[msgspec.Raw]]:
    """Split the items of a page into non-empty pieces of about `PORTION_BYTES`."""
    begin = size = 0
    for end, item in enumerate(items, 1):
        size += memoryview(item).nbytes
        if size >= PORTION_BYTES or end == len(items):
            yield items[begin:end]
            begin, size = end, 0


def _is_timeout(failure: Exception | None) -> bool:
    """Whether the server did not answer at all."""
    return isinstance(failure, TimeoutError) or (isinstance(failure, ApiUnavailableError) and not failure.is_answer)


class Collection(NamedTuple):
    """What is listed and watched."""

    resource: Resource
    namespace: str = ""
    """Empty means all."""
    label_selector: str = ""
    field_selector: str = ""

    def __str__(self) -> str:
        kind = ".".join(filter(None, (self.resource.plural, self.resource.group)))
        return f"{kind} in {self.namespace}" if self.namespace else kind

    @property
    def selectors(self) -> dict[str, str]:
        """The selectors that are set, as query parameters."""
        selectors = {"labelSelector": self.label_selector, "fieldSelector": self.field_selector}
        return {name: selector for name, selector in selectors.items() if selector}


class Phase(Enum):
    """What a reflector is doing."""

    WAITING = "waiting"
    """In a backoff, or until a watch is open."""
    LISTING = "listing"
    WATCHING = "watching"
    """A watch is open, so that changes are received as they happen."""


class _Activity:
    """Time of the last server activity.

    Answers, also rejections, and lines of a watch count. Lists do not while watches bring nothing, nor do watches that
    open and stay silent: polling must not hide a dead watch (D9).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.monotonic()
        self._has_no_lines = False
        """The last watch brought no line."""
        self._is_timed_out = False
        """The last opened watch fell silent, and no line has arrived since."""

    @property
    def age_s(self) -> float:
        """Seconds since then."""
        return self._clock.monotonic() - self._at

    def record_answer(self) -> None:
        """An answer, or the normal end of a watch."""
        self._at = self._clock.monotonic()
        self._has_no_lines = False

    def record_list(self) -> None:
        """A page of a list."""
        if not self._has_no_lines:
            self._at = self._clock.monotonic()

    def record_chunk(self, chunk: bytes) -> None:
        """Bytes of a watch; empty once it is open."""
        if chunk or not self._is_timed_out:
            self.record_answer()
        if chunk:
            self._is_timed_out = False

    def record_end(self) -> None:
        """The normal end of a watch."""
        self.record_answer()
        self._is_timed_out = False

    def record_silence(self, *, has_lines: bool, is_whole: bool) -> None:
        """A watch without an answer; `is_whole`: for the whole time after which it counts as dead."""
        self._has_no_lines = self._has_no_lines or not has_lines
        self._is_timed_out = self._is_timed_out or is_whole


class Reflector:
    """Lists and watches one collection forever.

    - It lists in pages and watches from the version of the list, with bookmarks.
    - A watch that is closed, broken or silent for `silence_s` is resumed from the last version received.
    - 410, an ERROR event, an undecodable line, and three consecutive resumes without any line cause a relist.
    - Consecutive failures wait 0.2 s, 0.4 s, … 30 s, and for Retry-After, but never more than 30 s; 10 s of a healthy
      watch reset that. While the server is unreachable the wait is at most 4 s, to recover soon after an outage.
    - A kind that the server does not serve has no objects; it is retried after 1 s, 2 s, … 30 s.
    - An optional collection (`if_forbidden` returns text) that is forbidden is retried every `forbidden_s`: a
      RoleBinding may be created after the Deployment.
    - A watch that ends normally without an event or a bookmark causes a check whether the server's version is below
      ours: a restored older store sends nothing to watches from its future (RM:F10, FD:REL-C).
    - `age_s` is the time since the last server activity, by the rules of `_Activity`.
    - `trouble` is the error that prevents listing or watching; empty while the collection is watched.
    - `relist` lists once more, not within 10 s of the last list or attempt; several requests are merged. `refresh`
      lists now. Neither waits for the end of a backoff.
    - `version` never decreases, except by a list.
    """

    def __init__(
        self,
        client: Client,
        collection: Collection,
        sink: Sink,
        *,
        clock: Clock,
        silence_s: float = SILENCE_S,
        if_forbidden: Callable[[], str] = str,
        forbidden_s: float = FORBIDDEN_S,
    ) -> None:
        """`if_forbidden` returns what is not done while the collection is forbidden; empty if it is required."""
        self.version = ""
        self.lists = 0
        """Number of completed lists."""
        self.is_listable: bool | None = None
        """Whether the kind may be listed: False if it is not served or forbidden, None before the first answer."""
        self.error = ""
        self.phase = Phase.WAITING
        self._client = client
        self._collection = collection
        self._sink = sink
        self._clock = clock
        self._activity = _Activity(clock)
        self._must_list = True
        self._lists_begun = 0
        self._last_list_done = 0
        self._listed_at = clock.monotonic()
        self._progress = asyncio.Condition()
        self._is_asked = asyncio.Event()
        """Set from the request of a list until it begins."""
        self._relist_later: asyncio.TimerHandle | None = None
        self._reading: asyncio.Timeout | None = None
        self._silence_s = silence_s
        self._if_forbidden = if_forbidden
        self._forbidden_s = forbidden_s
        self._logged = ("", "")
        """The last logged permission error and its consequence."""
        self._lines = 0
        self._watches_without_events = 0
        self._backoff = Backoff(first_s=0.2, longest_s=LONGEST_WAIT_S)
        self._absent = Backoff(first_s=1.0, longest_s=30.0)
        self._events = msgspec.json.Decoder(_Event)
        self._objects = msgspec.json.Decoder(AnyObject)

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            wait_s = await (self._list() if self._must_list else self._watch())
            if wait_s > 0:
                # Not wait_for: in Python 3.11 it loses a cancellation that arrives together with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._is_asked.wait()

    def relist(self) -> None:
        """Request one more list, soon."""
        if self._relist_later is None:
            delay_s = max(0.0, self._listed_at + RELIST_INTERVAL_S - self._clock.monotonic())
            self._relist_later = asyncio.get_running_loop().call_later(delay_s, self.list_now)

    async def refresh(self) -> None:
        """Return when a list that began after this call is complete."""
        wanted = self._lists_begun + 1
        self.list_now()
        async with self._progress:
            await self._progress.wait_for(lambda: self._last_list_done >= wanted)

    @property
    def age_s(self) -> float:
        """Seconds since the last server activity."""
        return self._activity.age_s

    def list_now(self) -> None:
        """List at once, without waiting for the end of a backoff."""
        if self._relist_later is not None:
            self._relist_later.cancel()
            self._relist_later = None
        self._must_list = True
        self._is_asked.set()
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())

    async def _list(self) -> float:
        """One attempt; returns the seconds to wait before continuing."""
        self._must_list = False
        self._is_asked.clear()
        self._lists_begun += 1
        number, version = self._lists_begun, ""
        self.phase = Phase.LISTING
        self._sink.begin()
        try:
            async for page in self._pages():
                version = page.resource_version
                self._activity.record_list()
                for items in _portions(page.items):
                    self._sink.collect(items)
                    await asyncio.sleep(0)  # decoding megabytes must not block the event loop
        except (ApiUnavailableError, ApiStatusError, *GARBAGE) as error:
            self._must_list, self._listed_at = True, self._clock.monotonic()
            self._record_failure(error)
            if isinstance(error, ApiStatusError) and error.status in (403, 404):
                self.is_listable = False
            if isinstance(error, ApiStatusError) and error.is_not_found:
                return self._is_absent()
            return self._forbidden_wait_s("list", error) or self._wait_s("cannot list", error)
        finally:
            self.phase = Phase.WAITING
        self._sink.replace()
        self.version, self.error, self.is_listable = version, "", True
        self.lists += 1
        self._watches_without_events = 0
        self._absent.reset()
        self._listed_at = self._clock.monotonic()
        self._activity.record_list()
        self._last_list_done = number
        async with self._progress:
            self._progress.notify_all()
        return 0.0

    def _pages(self, *, page_size: int = PAGE_SIZE) -> AsyncIterator[Page]:
        return self._client.pages(
            self._collection.resource,
            self._collection.namespace or None,
            label_selector=self._collection.label_selector,
            field_selector=self._collection.field_selector,
            page_size=page_size,
        )

    async def _watch(self) -> float:
        """One watch from opening to end; returns the seconds to wait before continuing."""
        opened_at, self._lines = self._clock.monotonic(), 0
        failure: Exception | None = None
        try:
            async with asyncio.timeout(None) as self._reading:
                await self._read()
                if not self._lines:
                    await self._check_version()
            self._activity.record_end()
        except TimeoutError as error:
            if self._must_list:
                return 0.0  # list_now asked for it
            failure = error
        except (ApiUnavailableError, ApiStatusError, _RelistError) as error:
            failure = error
            self._record_failure(error)
            if (
                isinstance(error, ApiStatusError)
                and error.status != 410
                and (wait_s := self._forbidden_wait_s("watch", error))
            ):
                self._must_list = True
                return wait_s
        finally:
            self._reading, self.phase = None, Phase.WAITING
        lasted_s = self._clock.monotonic() - opened_at
        if _is_timeout(failure):
            self._activity.record_silence(has_lines=self._lines > 0, is_whole=lasted_s >= self._silence_s)
        is_healthy = lasted_s >= HEALTHY_S
        if is_healthy and (self._lines or failure is None):
            self._backoff.reset()
        if is_healthy and failure is None:
            return 0.0
        return self._after(failure or ApiUnavailableError("the watch was closed at once"))

    def _is_absent(self) -> float:
        """The kind is not served: clear the sink and retry later."""
        self._sink.clear()
        wait_s = self._absent.next_s()
        self.error = f"waiting for CRD {self._collection}"
        level = logging.WARNING if self._absent.failures == 1 else logging.DEBUG
        log.log(level, "%s: the API server does not serve this resource yet", self.error)
        return wait_s

    def _forbidden_wait_s(self, verb: str, error: Exception) -> float:
        """Seconds to wait for an optional permission, which may be granted at run time; 0 for any other error."""
        self.error = f"cannot {verb} {self._collection}: {error}"
        consequence = self._if_forbidden()
        if not (consequence and isinstance(error, ApiStatusError) and error.status == 403):
            return 0.0
        if (self.error, consequence) != self._logged:
            log.info("%s; until this is allowed, %s; retrying every %.0f s", self.error, consequence, self._forbidden_s)
        self._logged = self.error, consequence
        return self._forbidden_s

    def _record_failure(self, failure: Exception) -> None:
        """Count a rejection as activity: while a kind is missing or forbidden, a restart would not help (D9)."""
        if isinstance(failure, ApiStatusError) or (isinstance(failure, ApiUnavailableError) and failure.is_answer):
            self._activity.record_answer()

    def _after(self, error: Exception) -> float:
        """Decide whether to resume or relist; returns the seconds to wait."""
        self._watches_without_events = 0 if self._lines else self._watches_without_events + 1
        is_expired = isinstance(error, ApiStatusError) and error.status == 410
        if isinstance(error, _RelistError) or is_expired or self._watches_without_events >= RESUMES:
            self._must_list = True
        return self._wait_s("relisting" if self._must_list else "watch interrupted", error)

    def _wait_s(self, what: str, error: Exception) -> float:
        longest_s = (
            UNAVAILABLE_BACKOFF_S if isinstance(error, ApiUnavailableError | TimeoutError) else self._backoff.longest_s
        )
        asked_s = min(getattr(error, "retry_after_s", None) or 0.0, LONGEST_WAIT_S)
        wait_s = max(min(self._backoff.next_s(), longest_s), asked_s)
        resource, namespace = self._collection.resource, self._collection.namespace
        where = f" in {namespace}" if namespace else ""
        level = logging.DEBUG if self._is_expected(error) else logging.WARNING
        log.log(level, "%s%s: %s, retrying in %.1f s: %s", resource.plural, where, what, wait_s, error)
        return wait_s

    def _is_expected(self, error: Exception) -> bool:
        """Whether the API server asks to retry later and has not asked often: it does so while it sets up a new CRD's storage."""
        is_throttled = isinstance(error, ApiUnavailableError) and error.is_throttled
        return is_throttled and self._backoff.failures <= EXPECTED_RETRIES

    async def _read(self) -> None:
        query = {
            **self._collection.selectors,
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(self._silence_s * SERVER_SHARE))),
        }
        resource, namespace = self._collection.resource, self._collection.namespace or None
        chunks = self._client.watch(resource, namespace, query=query, silence_s=self._silence_s)
        rest = b""
        async with aclosing(chunks):
            async for chunk in chunks:
                self.error, self.phase = "", Phase.WATCHING  # the first line may take a minute
                self._activity.record_chunk(chunk)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        self._apply_event(line)

    async def _check_version(self) -> None:
        """Raise if the server's version is below ours: one page of one object, only after a watch without lines."""
        async with aclosing(cast("AsyncGenerator[Page, None]", self._pages(page_size=1))) as pages:
            async for page in pages:
                if version_number(page.resource_version) < version_number(self.version):
                    raise _RelistError(
                        f"the API server's resourceVersion is {page.resource_version}, older than {self.version} of the watch"
                    )
                return

    def _apply_event(self, line: bytes) -> None:
        """Apply one line of the watch; raises `_RelistError` if only a new list can continue it."""
        try:
            event = self._events.decode(line)
            if event.type == "ERROR":
                error = msgspec.json.decode(event.object, type=_Error)
                raise _RelistError(f"{error.code} {error.reason}: {error.message}")
            if event.type == "BOOKMARK":
                version = self._objects.decode(event.object).metadata.resource_version
            elif event.type in ("ADDED", "MODIFIED", "DELETED"):
                version = self._sink.change(event.type, event.object)
            else:
                raise _RelistError(f"watch event of unknown type {event.type!r}")
        except GARBAGE as error:
            raise _RelistError(f"watch event cannot be decoded: {error}") from error
        self._lines += 1
        if version_number(version) >= version_number(self.version):
            self.version = version
