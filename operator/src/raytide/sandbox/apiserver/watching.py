"""What does one watcher see?

A `WatchCursor` turns the changes of one kind into watch lines for one watcher: its namespace, its selectors, its view
(whole objects, metadata only, tables, the other events API). It owns no clock and no socket: whoever serves it takes the
lines, asks for bookmarks when it thinks it is time, and closes it. Made by `routes.py`; served by the HTTP adapter and
by the in-process transport of simulations.
"""

from collections.abc import Callable
from dataclasses import dataclass

from raytide.sandbox.apiserver.store import Change, Entry, Store

Matcher = Callable[[Entry], bool]
View = Callable[[str, Entry], bytes]
"""(event type, entry) -> the watch line."""


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """How one watcher wants it. `timeout_s` is for whoever serves the cursor; None means the server's own limit."""

    namespace: str = ""
    matches: Matcher | None = None
    view: View | None = None
    has_bookmarks: bool = False
    timeout_s: float | None = None
    after: int = 0
    """Nothing up to this version is told: a watch may begin in the future of a store that was restored."""
    content_type: str = "application/json"


class WatchCursor:
    """The events of one watch, ready to be sent.

    - `take()` returns the lines that wait, oldest first, each ending with a newline, and forgets them.
    - `on_ready(callback)`: called whenever lines arrive where none waited, and when the cursor closes.
    - `is_closed`: no line will be added any more (those that wait can still be taken).
    - `add_bookmark()`: the server's version now, as a BOOKMARK line; does nothing unless the watcher asked for them, nor
      while the version is below the one that the watch began after.
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
        """The lines that wait; they are yours now."""
        lines = self._lines
        self._lines = []
        return lines

    def on_ready(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when there is something to take; at once if there is already."""
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
        """Tell the watcher how far the world is."""
        if self.options.has_bookmarks and not self.is_closed and self._store.version >= self.options.after:
            self.add(self._bookmark())

    def add(self, line: bytes) -> None:
        """Put one line at the end."""
        self._lines.append(line)
        if len(self._lines) == 1 and self._ready is not None:
            self._ready()

    def show(self, event_type: str, entry: Entry) -> None:
        """Add an event for `entry` in this watcher's view, if it is for this watcher."""
        if self.options.matches is None or self.options.matches(entry):
            self.add(self._line(event_type, entry))

    def see(self, change: Change) -> None:
        """Add what this change means to this watcher: leaving the selection is DELETED, entering it is ADDED."""
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
