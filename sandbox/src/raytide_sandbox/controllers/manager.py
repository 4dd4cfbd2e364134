"""Controller manager of the sandbox, one step at a time.

Takes a store and, at each step, all changes since the last one; runs the controllers until none has anything left to
do, and returns when to call again. The cost follows the number of changes, not of objects. It never waits, reads no
clock and needs no event loop: the sandbox calls it after each burst of changes, a simulation after each write, in
virtual time (D17).
"""

from collections import deque
from datetime import datetime
from pathlib import PurePath
from typing import Final

from raytide_sandbox.apiserver.store import Change, Store
from raytide_sandbox.controllers.base import Controller, Noted
from raytide_sandbox.controllers.endpoints import EndpointsController
from raytide_sandbox.controllers.event_ttl import EventExpiry
from raytide_sandbox.controllers.garbage_collector import GarbageCollector, OrphanedPods
from raytide_sandbox.controllers.job import JobController
from raytide_sandbox.controllers.namespace import NamespaceLifecycle, ServiceAccounts, ensure_initial
from raytide_sandbox.controllers.scheduler import Scheduler
from raytide_sandbox.controllers.volumes import VolumeProvisioner

ROUNDS_PER_STEP: Final = 100
"""Limit that ends the loop of two controllers that keep reacting to each other."""


class Controllers:
    """The controllers of one store; create one per store and call `step` after changes."""

    def __init__(
        self, store: Store, *, authority: str = "", has_scheduler: bool = True, volumes: PurePath | None = None
    ) -> None:
        """`authority` is the PEM of kube-root-ca.crt; with `has_scheduler=False` another component binds pods.

        `volumes` is the directory for PersistentVolumes; without one, claims stay pending.
        """
        ensure_initial(store)
        self._store = store
        self._changes: deque[Change] = deque()
        self._controllers: tuple[Controller, ...] = (
            NamespaceLifecycle(store),
            ServiceAccounts(store, authority),
            GarbageCollector(store),
            OrphanedPods(store),
            VolumeProvisioner(store, volumes),
            *([Scheduler(store)] if has_scheduler else []),
            EndpointsController(store),
            JobController(store),
            EventExpiry(store),
        )
        for resource in store.resources():
            for key, entry in store.entries(resource.key):
                self._changes.append(Change("ADDED", key, entry, None))
        store.subscribe(self._changes.append)

    @property
    def has_changes(self) -> bool:
        """True when changes are queued for `step`."""
        return bool(self._changes)

    def step(self, now: datetime) -> datetime | None:
        """Process all changes, including the controllers' own; returns when to call again, None: after a change."""
        wakeups: list[datetime] = []
        for _ in range(ROUNDS_PER_STEP):
            while self._changes:
                noted = Noted(self._changes.popleft())
                for controller in self._controllers:
                    controller.on_change(noted)
            wakeups = [wakeup for controller in self._controllers if (wakeup := controller.act(now)) is not None]
            if not self._changes:
                return min(wakeups, default=None)
        return now
