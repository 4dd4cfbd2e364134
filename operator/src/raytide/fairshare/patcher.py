"""Patcher: writes orders to the API server, and overlays what was written until the informer has caught up.

Each job is patched once with the resourceVersion that the decision was made from. After a conflict over anything else
in the job (its status is written often) the patch is retried with the new version. What was written replaces the
informer's older view until that has caught up; if the outcome of a write is unknown, the job is read before the next
pass. A rejected patch affects no other job; an unavailable API server ends the round. Used by reconciler.py (TJ §3 row
19).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import TRAININGJOBS, Key, Manifest
from raytide.api.trainingjob import TrainingJob
from raytide.fairshare import messages
from raytide.fairshare.job_view import shared_job
from raytide.fairshare.patch_plan import JobPatch
from raytide.kube.client import Client
from raytide.kube.reflector import version_number
from raytide.metrics import WRITES
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

ATTEMPTS: Final = 4
AT_ONCE: Final = 8


class JobPatcher:
    """Patches of one term of leadership, and the state they leave behind."""

    def __init__(self, client: Client, *, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._written: dict[Key, TrainingJob] = {}
        self._unsure: set[Key] = set()
        self._said: dict[Key, str] = {}

    def reset_for_new_term(self) -> None:
        """Drop the state of earlier terms."""
        self._written.clear()
        self._unsure.clear()
        self._said.clear()

    # --- before a pass -------------------------------------------------------------------------------------------------

    async def read_again(self) -> None:
        """Read the jobs whose last write has an unknown outcome; raises Unavailable.

        A job that may not be read any more (its namespace lost the operator's role) is left to the informer and blocks
        no other.
        """
        for key in sorted(self._unsure):
            try:
                live = await self._client.get(TRAININGJOBS, key)
            except ApiStatusError as refused:
                log.warning(messages.JOB_NOT_READABLE, key, refused)
                live = None
            if live is not None:
                self._keep(live)
            self._unsure.discard(key)

    def overlay_own_writes(
        self, jobs: Iterable[tuple[Key, TrainingJob | None]], version_in: Callable[[str], int]
    ) -> list[TrainingJob]:
        """The informer's jobs, each overlaid with the version that this patcher wrote or read while the informer lags behind."""
        newest: dict[Key, TrainingJob] = {}
        for key, job in jobs:
            own = self._written.get(key)
            if own is not None and version_in(key.namespace) < _version(own) and (job is None or _is_newer(own, job)):
                newest[key] = own
            elif job is not None:
                newest[key] = job
        self._written = {key: own for key, own in self._written.items() if newest.get(key) is own}
        return list(newest.values())

    # --- writing -------------------------------------------------------------------------------------------------------

    async def write(self, orders: Sequence[JobPatch]) -> bool:
        """Write scale-downs, then scale-ups, then messages; True if another pass is needed. Raises Unavailable."""
        has_lost = False
        for _, phase in groupby(orders, key=lambda order: (order.grows_by > 0) - (order.grows_by < 0)):
            slots, orders_of_phase = asyncio.Semaphore(AT_ONCE), list(phase)
            results = await asyncio.gather(
                *(self._guarded(order, slots) for order in orders_of_phase), return_exceptions=True
            )
            for result in results:
                if isinstance(result, BaseException):
                    raise result
                has_lost = has_lost or not result
        return has_lost

    async def _guarded(self, order: JobPatch, slots: asyncio.Semaphore) -> bool:
        """Write one order; False if it was dropped because the job has changed."""
        key = order.job.key
        async with slots:
            try:
                is_done = await self._patch(order)
            except ApiStatusError as refused:
                self._say(order, refused)
                return True
            except ApiUnavailableError as error:
                WRITES.labels("TrainingJob", "patch", "unavailable").inc()
                if error.is_outcome_unknown:
                    self._unsure.add(key)
                raise
        WRITES.labels("TrainingJob", "patch", "done" if is_done else "conflict").inc()
        self._said.pop(key, None)
        return is_done

    async def _patch(self, order: JobPatch) -> bool:
        key, version = order.job.key, order.job.metadata.resource_version
        for _attempt in range(ATTEMPTS):
            try:
                self._keep(await self._client.patch(TRAININGJOBS, key, order.patch(version)))
            except ApiStatusError as refused:
                if refused.is_not_found:
                    return True
                if refused.status != 409:
                    raise
            else:
                _log(order)
                return True
            live = await self._client.get(TRAININGJOBS, key)
            known = None if live is None else self._keep(live)
            if known is None or not order.still_holds_for(known):
                return False
            version = known.metadata.resource_version
        return False

    def _keep(self, live: Manifest) -> TrainingJob | None:
        job = shared_job(live).job
        if job is not None:
            self._written[job.key] = job
        return job

    def _say(self, order: JobPatch, refused: ApiStatusError) -> None:
        """Log a rejected patch once per message: the next pass will try the same."""
        WRITES.labels("TrainingJob", "patch", "refused").inc()
        words = str(refused)
        if self._said.get(order.job.key) != words and not refused.is_namespace_terminating:
            log.warning(
                messages.PATCH_REJECTED,
                order.job.key,
                refused.reason,
                words,
            )
        self._said[order.job.key] = words


def _log(order: JobPatch) -> None:
    notes = order.record.resizes
    if order.grows_by and notes:
        log.info(
            messages.JOB_RESIZED,
            order.job.key,
            notes[-1].before,
            notes[-1].after,
            order.in_full or notes[-1].message,
        )


def _is_newer(own: TrainingJob, seen: TrainingJob) -> bool:
    return own.metadata.uid == seen.metadata.uid and _version(own) > version_number(seen.metadata.resource_version)


def _version(job: TrainingJob) -> int:
    return version_number(job.metadata.resource_version)
