"""Feeds of all views: what the watches show, divided by what each caller may see.

`update` takes the lanes of the whole cluster. One feed of everything always exists, so that the history is complete when the first
caller comes; a feed of another view begins when a caller asks for it and ends when no page has followed it for a while. The feed of
a namespace has that namespace's lanes only, and of the rest three numbers. Reads no clock and does no I/O. Called by serve.py and
app.py.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from raytide.cli.lane_watch import Problem
from raytide.cli.ui.access import View
from raytide.cli.ui.feed import MAX_READERS, Elsewhere, Feed, Recording, TooManyReadersError
from raytide.client.workload_reader import RESOURCES
from raytide.explain.cluster_capacity import CapacityView
from raytide.explain.overview import Lane

IDLE_UPDATES: Final = 60
"""A feed that no page follows ends after so many updates."""


class _Latest:
    """What the watches showed last, with the lanes by namespace: a view of a namespace does not look at those of others."""

    def __init__(
        self, lanes: Sequence[Lane], problems: list[Problem], now: datetime, capacity: CapacityView | None
    ) -> None:
        self.lanes, self.problems, self.now, self.capacity = lanes, problems, now, capacity
        self.by_namespace: dict[str, list[Lane]] = {}
        for lane in lanes:
            self.by_namespace.setdefault(lane.namespace, []).append(lane)
        self.total = _sizes(lanes)


class Feeds:
    """One feed per view, at most `views` of them with `readers` each; the feed of `everything` always exists."""

    def __init__(self, everything: View, *, views: int = 1, readers: int = MAX_READERS) -> None:
        self._everything, self._views, self._readers = everything, views, readers
        self._recording = Recording()
        self._feeds = {everything: self._new(everything)}
        self._idle: dict[View, int] = {}
        """Updates since a page followed it or a caller asked for it."""
        self._latest: _Latest | None = None

    @property
    def is_listed(self) -> bool:
        """Whether the first lists have arrived, or are known not to."""
        return self._latest is not None

    def of(self, view: View) -> Feed:
        """The feed of that view; raises TooManyReadersError if pages follow as many others as there may be."""
        feed = self._feeds.get(view)
        if feed is None:
            if len(self._feeds) >= self._views:
                self._drop_longest_idle()
            feed = self._feeds[view] = self._new(view)
            if self._latest is not None:
                self._update(view, feed, self._latest)
        self._idle[view] = 0
        return feed

    def update(
        self, lanes: Sequence[Lane], problems: list[Problem], now: datetime, capacity: CapacityView | None = None
    ) -> None:
        """Pass these lanes on to every feed, each as far as its view goes; no capacity is the last one."""
        self._latest = _Latest(lanes, problems, now, capacity)
        for view, feed in tuple(self._feeds.items()):
            self._update(view, feed, self._latest)
            self._idle[view] = 0 if feed.has_readers else self._idle.get(view, 0) + 1
            if self._idle[view] > IDLE_UPDATES and view != self._everything:
                self._drop(view)

    def close(self) -> None:
        """End every stream."""
        for feed in self._feeds.values():
            feed.close()

    def _new(self, view: View) -> Feed:
        return Feed(view.namespace, self._recording, max_readers=self._readers)

    def _update(self, view: View, feed: Feed, latest: _Latest) -> None:
        if view == self._everything:
            feed.update(latest.lanes, latest.problems, latest.now, latest.capacity)
            return
        lanes = latest.by_namespace.get(view.namespace, []) if view.namespace else latest.lanes
        seen = [lane for lane in lanes if lane.kind in view.kinds]
        problems = [problem for problem in latest.problems if problem.kind in view.kinds]
        denied = [kind for kind in RESOURCES if kind not in view.kinds]
        problems += [Problem(kind, "the token may not list them", is_rejected=True) for kind in denied]
        elsewhere = Elsewhere(*(total - here for total, here in zip(latest.total, _sizes(seen), strict=True)))
        feed.update(seen, problems, latest.now, latest.capacity, elsewhere)

    def _drop_longest_idle(self) -> None:
        idle = [view for view, feed in self._feeds.items() if view != self._everything and not feed.has_readers]
        if not idle:
            raise TooManyReadersError
        self._drop(max(idle, key=lambda view: self._idle[view]))

    def _drop(self, view: View) -> None:
        self._idle.pop(view, None)
        self._feeds.pop(view).close()


def _sizes(lanes: Sequence[Lane]) -> tuple[int, int, int]:
    """Number of lanes, and how many pods they want and have."""
    return len(lanes), sum(lane.wanted for lane in lanes), sum(lane.ready for lane in lanes)
