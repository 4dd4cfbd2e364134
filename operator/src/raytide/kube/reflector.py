"""How is one collection followed, whatever happens to the connection?

A list, then a watch from where the list ended; pages and changes go to a `Sink`, in order. It promises that the sink is
complete again some time after any trouble: it resumes where it can, lists anew where it must, and backs off so that a
broken server is not hammered. It keeps no object. Used by `kube/informer`, once per namespace it looks at (D3).
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from typing import Final, Protocol, cast

import msgspec

from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import Resource
from raytide.kube.client import GARBAGE, PAGE_SIZE, Client, Page
from raytide.runtime.backoff import Backoff
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

SILENCE_S: Final = 60.0
SERVER_SHARE: Final = 55 / 60
"""We ask the server to end each watch before it may look silent: a real API server sends bookmarks once a minute."""
HEALTHY_S: Final = 10.0
"""A stream that lived so long was a good one: back-off starts anew after it."""
RESUMES: Final = 3
RELIST_INTERVAL_S: Final = 10.0
FORBIDDEN_S: Final = 30.0
"""How often an optional collection is asked for again while it is forbidden (FD:REL-B)."""
LONGEST_WAIT_S: Final = 30.0
"""Not even a `Retry-After` makes us wait longer: after 75 s without a sign of life the kubelet restarts us (FD:REL-E)."""
PORTION_BYTES: Final = 1 << 19
"""So much of a list is read in one step of the loop: most pages of ordinary objects take a few of them."""
AWAY_S: Final = 4.0
"""Fifteen seconds after an outage everything has to be in work again, of which opening a stream may take ten (SC:S18)."""


class ObjectMeta(msgspec.Struct, gc=False, rename="camel"):
    """The part of `metadata` that following needs."""

    resource_version: str = ""
    name: str = ""
    namespace: str = ""


class AnyObject(msgspec.Struct, gc=False):
    """Any object, as far as following needs it."""

    metadata: ObjectMeta


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _Error(msgspec.Struct, gc=False):
    code: int = 0
    reason: str = ""
    message: str = ""


class Sink(Protocol):
    """Where the objects go. Nothing in it awaits."""

    def begin(self) -> None:
        """A list begins: forget what was collected of an earlier, broken one."""

    def collect(self, items: Iterable[msgspec.Raw]) -> None:
        """A page of the list."""

    def replace(self) -> None:
        """The list is complete: what was collected is all there is."""

    def change(self, kind: str, item: msgspec.Raw) -> str:
        """ADDED, MODIFIED or DELETED; returns the object's version, raises one of `GARBAGE` on garbage."""
        ...


class _MustList(Exception):  # noqa: N818 - a verdict on the stream
    """The stream cannot be resumed."""


def version_number(version: str) -> int:
    """A resourceVersion for comparing; 0 if it is no number."""
    return int(version) if version.isascii() and version.isdigit() else 0


def _portions(items: Sequence[msgspec.Raw]) -> Iterator[Sequence[msgspec.Raw]]:
    """The items of a page in pieces of about `PORTION_BYTES`, none of them empty."""
    begin = size = 0
    for end, item in enumerate(items, 1):
        size += memoryview(item).nbytes
        if size >= PORTION_BYTES or end == len(items):
            yield items[begin:end]
            begin, size = end, 0


def _is_silence(trouble: Exception | None) -> bool:
    """Nobody said anything, neither yes nor no."""
    return isinstance(trouble, TimeoutError) or (isinstance(trouble, Unavailable) and not trouble.is_answer)


class Reflector:
    """Follows one collection for ever.

    - It lists in pages and watches from the version of the list, with bookmarks.
    - A watch that is closed, cut or silent for `silence_s` is resumed from the last version seen.
    - 410, an ERROR event, a line that cannot be read, and three resumes in a row that brought nothing make it list anew.
    - Failures in a row wait 0.2 s, 0.4 s, … 30 s, and as long as the server asked, but never more than 30 s; 10 good seconds
      start that anew. A server that is merely away is tried every 4 s: after an outage it must not be waited for much longer.
    - A kind that the server does not serve has no objects; it is asked for after 1 s, 2 s, … 30 s, until it is there.
    - An optional collection (`if_forbidden` says what is not done without it) that may not be listed or watched is asked for
      every `forbidden_s`: a RoleBinding may be created after the Deployment.
    - A stream that ends well but brought neither an event nor a bookmark makes it ask whether the server's version is below
      ours: a store that was restored from an older snapshot says nothing to watches from its future (RM:F10, FD:REL-C).
    - `signed_at` moves with every answer, a refusal included, and every line; but not with lists while the streams bring
      nothing, nor with streams that are opened and stay silent: polling must not hide that following is dead (D9).
    - `trouble` says in words what keeps us from listing or watching; it is empty while the collection is followed.
    - `relist` lists once more, however often it is asked, and not within 10 s of the last list, nor of the last attempt at
      one; `refresh` does so now. Neither waits for a back-off to end.
    - `version` never goes back, except by a list.
    """

    def __init__(
        self,
        client: Client,
        resource: Resource,
        namespace: str | None,
        sink: Sink,
        *,
        clock: Clock,
        label_selector: str,
        field_selector: str = "",
        silence_s: float = SILENCE_S,
        if_forbidden: str = "",
        forbidden_s: float = FORBIDDEN_S,
    ) -> None:
        self.version = ""
        self.lists = 0
        """How many lists were completed."""
        self.signed_at = clock.monotonic()
        """When the server last gave a sign of life."""
        self.is_listable: bool | None = None
        """Whether the server lets us list it: no while the kind is not there or forbidden, None until it has said."""
        self.trouble = ""
        self.is_open = False
        """Whether a stream is open, so that what happens now is told."""
        self._client = client
        self._resource = resource
        self._namespace = namespace
        self._sink = sink
        self._clock = clock
        selectors = {"labelSelector": label_selector, "fieldSelector": field_selector}
        self._selector = {name: selector for name, selector in selectors.items() if selector}
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._must_list = True
        self._lists_begun = 0
        self._last_list_done = 0
        self._listed_at = clock.monotonic()
        self._progress = asyncio.Condition()
        self._is_asked = asyncio.Event()
        """Set from the moment a list is asked for until it begins."""
        self._relist_later: asyncio.TimerHandle | None = None
        self._reading: asyncio.Timeout | None = None
        self._silence_s = silence_s
        self._if_forbidden = if_forbidden
        self._forbidden_s = forbidden_s
        self._told = ""
        """Which missing right was logged last."""
        self._lines = 0
        self._fruitless = 0
        self._is_deaf = False
        """The last stream brought nothing."""
        self._is_mute = False
        """The last stream that was opened fell silent, and no line has come since."""
        self._backoff = Backoff(first_s=0.2, longest_s=LONGEST_WAIT_S)
        self._absent = Backoff(first_s=1.0, longest_s=30.0)
        self._events = msgspec.json.Decoder(_Event)
        self._objects = msgspec.json.Decoder(AnyObject)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            wait_s = await (self._list() if self._must_list else self._watch())
            if wait_s > 0:
                # Not wait_for: in Python 3.11 it loses a cancellation that comes with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._is_asked.wait()

    def relist(self) -> None:
        """Something looks wrong: list once more, soon."""
        if self._relist_later is None:
            delay_s = max(0.0, self._listed_at + RELIST_INTERVAL_S - self._clock.monotonic())
            self._relist_later = asyncio.get_running_loop().call_later(delay_s, self._list_now)

    async def refresh(self) -> None:
        """Return when a list that began after this call is complete."""
        wanted = self._lists_begun + 1
        self._list_now()
        async with self._progress:
            await self._progress.wait_for(lambda: self._last_list_done >= wanted)

    async def wait_listed(self) -> None:
        """Return when the first list is complete."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.lists > 0)

    def _list_now(self) -> None:
        if self._relist_later is not None:
            self._relist_later.cancel()
            self._relist_later = None
        self._must_list = True
        self._is_asked.set()
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())

    async def _list(self) -> float:
        """One attempt; returns how long to wait before going on."""
        self._must_list = False
        self._is_asked.clear()
        self._lists_begun += 1
        number, version = self._lists_begun, ""
        self._sink.begin()
        try:
            async for page in self._pages():
                version = page.resource_version
                self._note_list()
                for items in _portions(page.items):
                    self._sink.collect(items)
                    await asyncio.sleep(0)  # reading megabytes of somebody's objects must not hold up the others
        except (Unavailable, Refused, *GARBAGE) as trouble:
            self._must_list, self._listed_at = True, self._clock.monotonic()
            self._note_answer(trouble)
            if isinstance(trouble, Refused) and trouble.status in (403, 404):
                self.is_listable = False
            if isinstance(trouble, Refused) and trouble.is_not_found:
                return self._is_absent()
            return self._refused("list", trouble) or self._wait_s("cannot list", trouble)
        self._sink.replace()
        self.version, self.trouble, self.is_listable = version, "", True
        self.lists += 1
        self._fruitless = 0
        self._absent.reset()
        self._listed_at = self._clock.monotonic()
        self._note_list()
        self._last_list_done = number
        async with self._progress:
            self._progress.notify_all()
        return 0.0

    def _pages(self, *, page_size: int = PAGE_SIZE) -> AsyncIterator[Page]:
        return self._client.pages(
            self._resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            page_size=page_size,
        )

    async def _watch(self) -> float:
        """One stream from opening to end; returns how long to wait before going on."""
        opened_at, self._lines = self._clock.monotonic(), 0
        trouble: Exception | None = None
        try:
            async with asyncio.timeout(None) as self._reading:
                await self._read()
                if not self._lines:
                    await self._check_version()
            self._note_stream()
            self._is_mute = False
        except TimeoutError as error:
            if self._must_list:
                return 0.0  # _list_now asked for it
            trouble = error
        except (Unavailable, Refused, _MustList) as error:
            trouble = error
            self._note_answer(error)
            if isinstance(error, Refused) and error.status != 410 and (wait_s := self._refused("watch", error)):
                self._must_list = True
                return wait_s
        finally:
            self._reading, self.is_open = None, False
        lasted_s = self._clock.monotonic() - opened_at
        if _is_silence(trouble):
            self._is_deaf = self._is_deaf or not self._lines
            self._is_mute = self._is_mute or lasted_s >= self._silence_s
        is_healthy = lasted_s >= HEALTHY_S
        if is_healthy and (self._lines or trouble is None):
            self._backoff.reset()
        if is_healthy and trouble is None:
            return 0.0
        return self._after(trouble or Unavailable("closed at once"))

    def _is_absent(self) -> float:
        """The kind is not there, so nothing of it is: look again later."""
        self._sink.begin()
        self._sink.replace()
        wait_s = self._absent.next_s()
        self.trouble = f"waiting for CRD {self._what}"
        level = logging.WARNING if self._absent.failures == 1 else logging.DEBUG
        log.log(level, "%s: the API server does not serve it (yet)", self.trouble)
        return wait_s

    def _refused(self, verb: str, trouble: Exception) -> float:
        """How long to wait for a right that is optional, since it may be granted while we run; 0 for any other trouble."""
        self.trouble = f"cannot {verb} {self._what}: {trouble}"
        if not (self._if_forbidden and isinstance(trouble, Refused) and trouble.status == 403):
            return 0.0
        if self.trouble != self._told:
            words = "%s; until that is allowed, %s; asking every %.0f s"
            log.info(words, self.trouble, self._if_forbidden, self._forbidden_s)
        self._told = self.trouble
        return self._forbidden_s

    @property
    def _what(self) -> str:
        kind = ".".join(filter(None, (self._resource.plural, self._resource.group)))
        return f"{kind} in {self._namespace}" if self._namespace else kind

    def _note_answer(self, trouble: Exception) -> None:
        """A no is a sign of life too: while a kind is missing or forbidden, a restart would not help (D9)."""
        if isinstance(trouble, Refused) or (isinstance(trouble, Unavailable) and trouble.is_answer):
            self._note_stream()

    def _note_stream(self) -> None:
        self.signed_at = self._clock.monotonic()
        self._is_deaf = False

    def _note_list(self) -> None:
        if not self._is_deaf:
            self.signed_at = self._clock.monotonic()

    def _after(self, trouble: Exception) -> float:
        """Resume or list anew?"""
        self._fruitless = 0 if self._lines else self._fruitless + 1
        is_expired = isinstance(trouble, Refused) and trouble.status == 410
        if isinstance(trouble, _MustList) or is_expired or self._fruitless >= RESUMES:
            self._must_list = True
        return self._wait_s("must list anew" if self._must_list else "watch was interrupted", trouble)

    def _wait_s(self, what: str, trouble: Exception) -> float:
        longest_s = AWAY_S if isinstance(trouble, Unavailable | TimeoutError) else self._backoff.longest_s
        asked_s = min(getattr(trouble, "retry_after_s", None) or 0.0, LONGEST_WAIT_S)
        wait_s = max(min(self._backoff.next_s(), longest_s), asked_s)
        where = f" in {self._namespace}" if self._namespace else ""
        log.warning("%s%s: %s, going on in %.1f s: %s", self._resource.plural, where, what, wait_s, trouble)
        return wait_s

    async def _read(self) -> None:
        query = {
            **self._selector,
            "resourceVersion": self.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(self._silence_s * SERVER_SHARE))),
        }
        chunks = self._client.watch(self._resource, self._namespace, query=query, silence_s=self._silence_s)
        rest = b""
        async with aclosing(chunks):
            async for chunk in chunks:
                self.trouble, self.is_open = "", True  # it may have nothing to say for a minute
                if chunk or not self._is_mute:
                    self._note_stream()
                if chunk:
                    self._is_mute = False
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        self._take(line)

    async def _check_version(self) -> None:
        """Raise when the collection's version is below the one we watch from; one small page, and only after a silent stream."""
        async with aclosing(cast("AsyncGenerator[Page, None]", self._pages(page_size=1))) as pages:
            async for page in pages:
                if version_number(page.resource_version) < version_number(self.version):
                    raise _MustList(f"the server is at version {page.resource_version}, we had seen {self.version}")
                return

    def _take(self, line: bytes) -> None:
        try:
            event = self._events.decode(line)
            if event.type == "ERROR":
                error = msgspec.json.decode(event.object, type=_Error)
                raise _MustList(f"{error.code} {error.reason}: {error.message}")
            if event.type == "BOOKMARK":
                version = self._objects.decode(event.object).metadata.resource_version
            elif event.type in ("ADDED", "MODIFIED", "DELETED"):
                version = self._sink.change(event.type, event.object)
            else:
                raise _MustList(f"an event of the unknown type {event.type!r}")
        except GARBAGE as error:
            raise _MustList(f"a line that cannot be read: {error}") from error
        self._lines += 1
        if version_number(version) >= version_number(self.version):
            self.version = version
