"""What does the control plane do about what changed?

Takes a store and, at each step, everything that changed in it since the last one; lets the controllers act until none
has anything left to do, and returns when to look again. Work is proportional to what changed, not to what there is. It
never waits, reads no clock and knows no loop: the sandbox calls it after each burst of changes, a simulation after each
write, in virtual time (D17).
"""

from collections import deque
from datetime import datetime
from typing import Final

from raytide.sandbox.apiserver.store import Change, Store
from raytide.sandbox.control import Controller, Noted
from raytide.sandbox.endpoints import EndpointsController
from raytide.sandbox.expiry import EventExpiry
from raytide.sandbox.garbage import GarbageCollector, OrphanedPods
from raytide.sandbox.namespaces import NamespaceLifecycle, ServiceAccounts, ensure_initial
from raytide.sandbox.scheduling import Scheduler

ROUNDS_PER_STEP: Final = 100
"""A pair of controllers that answer each other for ever must not take the process with them."""


class Controllers:
    """The controllers of one store; make one per store and call `step` whenever something changed."""

    def __init__(self, store: Store, *, authority: str = "", has_scheduler: bool = True) -> None:
        """`authority` is the PEM that namespaces publish as kube-root-ca.crt; without a scheduler somebody else binds."""
        ensure_initial(store)
        self._store = store
        self._changes: deque[Change] = deque()
        self._controllers: tuple[Controller, ...] = (
            NamespaceLifecycle(store),
            ServiceAccounts(store, authority),
            GarbageCollector(store),
            OrphanedPods(store),
            *([Scheduler(store)] if has_scheduler else []),
            EndpointsController(store),
            EventExpiry(store),
        )
        for resource in store.resources():
            for key, entry in store.entries(resource.key):
                self._changes.append(Change("ADDED", key, entry, None))
        store.subscribe(self._changes.append)

    @property
    def has_changes(self) -> bool:
        """True when `step` has something new to look at."""
        return bool(self._changes)

    def step(self, now: datetime) -> datetime | None:
        """React to all changes, including those made by reacting; returns when to look again, None if only on change."""
        wakeups: list[datetime] = []
        for _ in range(ROUNDS_PER_STEP):
            while self._changes:
                noted = Noted(self._changes.popleft())
                for controller in self._controllers:
                    controller.note(noted)
            wakeups = [wakeup for controller in self._controllers if (wakeup := controller.act(now)) is not None]
            if not self._changes:
                return min(wakeups, default=None)
        return now
