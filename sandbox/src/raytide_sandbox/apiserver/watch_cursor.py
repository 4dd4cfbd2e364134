"""The events of one watch.

A `WatchCursor` turns the changes of one kind into watch lines for one watcher: its namespace, its selectors, its view
(whole objects, metadata only, tables, the other events API). It has no clock and no socket: its server takes the lines,
asks for bookmarks periodically, and closes it. Created by `read_handlers.py`; served by the HTTP adapter and by the
in-process transport of simulations.
"""

from collections.abc import Callable
from dataclasses import dataclass

from raytide_sandbox.apiserver.store import Change, Entry, Store

Matcher = Callable[[Entry], bool]
View = Callable[[str, Entry], bytes]
"""(event type, entry) -> the watch line."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """The options of one watch; `timeout_s` is for the cursor's server, None means the server's own limit."""

    namespace: str = ""
    matches: Matcher | None = None
    view: View | None = None
    has_bookmarks: bool = False
    timeout_s: float | None = None
    after: int = 0
    """Changes up to this version are left out: after a restore, a watch may start above the store's version."""
    content_type: str = "application/json"


class WatchCursor:
    """The events of one watch, ready to be sent.

    - `take()` removes and returns the waiting lines, oldest first, each ending with a newline.
    - `on_ready(callback)`: called whenever a line arrives where none waited, and when the cursor closes.
    - `is_closed`: no line will be added any more; waiting lines can still be taken.
    - `add_bookmark()` adds the server's current version as a BOOKMARK line, unless the client did not ask for bookmarks
      or the version is below the one that the watch started after.
    """

    def __init__(self, store: Store, resource: str, options: WatchOptions, *, bookmark: Callable[[], bytes]) -> None:
        self.options = options
        self.is_closed = False
        self.resource = resource
        self._store = store
        self._bookmark = bookmark
        self._lines: list[bytes] = []
        self._ready: Callable[[], None] | None = None
        self._unsubscribe = store.subscribe(self.see, resource)

    def take(self) -> list[bytes]:
        """Remove and return the waiting lines."""
        lines = self._lines
        self._lines = []
        return lines

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Call `callback` when there is something to take; at once if there is already."""
        self._ready = callback
        if self._lines or self.is_closed:
            callback()

    def close(self) -> None:
        """End the watch; idempotent."""
        if self.is_closed:
            return
        self.is_closed = True
        self._unsubscribe()
        if self._ready is not None:
            self._ready()

    def add_bookmark(self) -> None:
        """Add a bookmark with the store's current version, if the client asked for bookmarks."""
        if self.options.has_bookmarks and not self.is_closed and self._store.version >= self.options.after:
            self.add(self._bookmark())

    def add(self, line: bytes) -> None:
        """Append one line."""
        self._lines.append(line)
        if len(self._lines) == 1 and self._ready is not None:
            self._ready()

    def show(self, event_type: str, entry: Entry) -> None:
        """Add an event for `entry` in this watch's view, if its selectors match."""
        if self.options.matches is None or self.options.matches(entry):
            self.add(self._line(event_type, entry))

    def see(self, change: Change) -> None:
        """Add this change as an event of this watch: leaving the selection is DELETED, entering it is ADDED."""
        options = self.options
        if change.version <= options.after:
            return
        if options.namespace and change.key.namespace != options.namespace:
            return
        if options.matches is None:
            self.add(change.line if options.view is None else options.view(change.type, change.entry))
            return
        is_match = options.matches(change.entry)
        was_match = change.previous is not None and options.matches(change.previous)
        if change.type == "DELETED":
            if is_match or was_match:
                self.add(self._line("DELETED", change.entry))
        elif is_match:
            self.add(self._line("MODIFIED" if was_match else "ADDED", change.entry))
        elif was_match:
            self.add(self._line("DELETED", change.entry))

    def _line(self, event_type: str, entry: Entry) -> bytes:
        if self.options.view is not None:
            return self.options.view(event_type, entry)
        return b'{"type":"%s","object":%s}\n' % (event_type.encode(), entry.raw)
