"""Leader election: acquires and renews a Lease and runs `lead` while it is held.

A loop around the verdicts of `api/lease`. No two electors have an open write gate at the same time, regardless of their
wall clocks: without the API server the gate closes by itself; losing the lease ends the term, not the process. Run by
manager/main.py, which passes the gate to `kube/client`; D10, RM:I10.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias

from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.lease import (
    LeaseDecision,
    LeaseObservation,
    LeaseTiming,
    build_held,
    build_released,
    decide,
    observe,
    record_of,
)
from raytide.api.meta import LEASES, Key, Manifest, micro_time
from raytide.kube.client import Client
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

Lead: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Coroutine of a term: cancelled when the lease is lost; when it returns, the lease is released for good."""
LOG_INTERVAL_S: Final = 60.0


class Elector:
    """One candidate for one lease.

    - `may_write_s` is the write gate: seconds until the last renewal stops protecting us, counted from when it was
      sent; zero without the lease.
    - A lease with our identity is renewed, so that a restarted container continues at once; one without a holder is
      acquired; one of another holder only after it was unchanged for its duration.
    - While the API server is away the gate closes by itself, the term continues, and the next renewal opens the gate.
    - Once another holder has had the lease the gate is closed and the term cancelled; a new term begins only when the
      old one has ended completely.
    - An ordered shutdown, or an error in a term, releases the lease after the last write. With an unanswered write it
      is left to expire: that write could still be carried out after another replica became leader (FD:REL-D).
    """

    def __init__(
        self, client: Client, key: Key, *, identity: str, clock: Clock, timing: LeaseTiming | None = None
    ) -> None:
        """`client` must not be gated, and should have its own connections."""
        self.identity = identity
        self.terms = 0
        """Number of terms begun."""
        self.has_attempted = asyncio.Event()
        """Set after the first attempt, whatever its result."""
        self._client = client
        self._key = key
        self._clock = clock
        self._timing = timing or LeaseTiming()
        self._stopping = asyncio.Event()
        self._observation: LeaseObservation | None = None
        self._held: Manifest | None = None
        """The Lease as our last write left it; None when another client may have changed it since."""
        self._unanswered_s: Callable[[], float] = lambda: 0.0
        self._is_leading = False
        self._transitions = 0
        self._renewed_at = 0.0
        self._attempted_at = clock.boottime()
        """When the last attempt began."""
        self._logged_at: float | None = None
        self._error = ""

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def is_leading(self) -> bool:
        """Whether a term is running; its gate may be closed nevertheless."""
        return self._is_leading

    def may_write_s(self) -> float:
        """Seconds that a write starting now may take."""
        if not self._is_leading:
            return 0.0
        return max(0.0, self._renewed_at + self._timing.renew_deadline_s - self._clock.boottime())

    def renewed_s(self) -> float:
        """Seconds since our last renewal; 0 without the lease."""
        return self._clock.boottime() - self._renewed_at if self._is_leading else 0.0

    def idle_s(self) -> float:
        """Seconds since the loop last began an attempt; a large value means it is stuck."""
        return self._clock.boottime() - self._attempted_at

    def status_text(self) -> str:
        """State for the health endpoints."""
        failed = f"; {self._error}" if self._error else ""
        if self._is_leading:
            return f"held, renewed {self.renewed_s():.1f} s ago, may write for {self.may_write_s():.1f} s{failed}"
        holder = self._observation.record.holder if self._observation else ""
        return f"standby, {f'held by {holder}' if holder else 'not held yet'}{failed}"

    # --- running ------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop waiting for the lease; a running term ends by itself."""
        self._stopping.set()

    async def run(self, lead: Lead, *, unanswered_s: Callable[[], float]) -> None:
        """Run a term whenever the lease is held, until stopped.

        `unanswered_s`: seconds for which a write of the term may still be carried out (`Client.unanswered_s`).
        """
        self._unanswered_s = unanswered_s
        try:
            while not self._stopping.is_set():
                if await self._is_ours():
                    if await self._run_term(lead):
                        return
                else:
                    self.has_attempted.set()
                    await self._wait_for_next_attempt()
        finally:
            self.has_attempted.set()

    async def _run_term(self, lead: Lead) -> bool:
        """One term; True when it ended in order, False when the lease was lost."""
        self.terms += 1
        log.info("became leader, term %d: acquired lease %s as %s", self.terms, self._key, self.identity)
        term = asyncio.get_running_loop().create_task(lead())
        self.has_attempted.set()  # after the term's task was created: it requests its lists first (D6)
        is_lost = False
        try:
            while not (term.done() or is_lost):
                wait_s = self._attempted_at + self._timing.retry_s - self._clock.boottime()
                await asyncio.wait([term], timeout=max(0.0, wait_s))
                is_lost = not term.done() and not await self._is_ours()
        finally:
            if is_lost:
                self._is_leading = False  # the gate is closed before anything else happens
            await _end(term)
            await self._release()
        if is_lost:
            log.warning("lost lease %s, no longer leader: %s", self._key, self.status_text())
            return False
        term.result()
        return True

    async def _wait_for_next_attempt(self) -> None:
        """Sleep until the next attempt: shorter when the lease is about to expire."""
        wait_s = self._timing.attempt_interval_s
        if self._observation is not None and not self._error:
            wait_s = min(wait_s, max(0.01, self._observation.record.duration_s - self._observation.unchanged_s))
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):  # wait_for may swallow a cancellation before Python 3.12
                await self._stopping.wait()

    async def _is_ours(self) -> bool:
        """One attempt to renew or acquire; False when the lease is certainly not ours.

        Without an answer the state is unchanged: a leader remains leader, and its gate closes.
        """
        self._attempted_at = self._clock.boottime()
        try:
            is_ours = await self._attempt()
        except (ApiStatusError, ApiUnavailableError) as error:
            self._held = None
            self._record_error(error)
            return self._is_leading
        self._error = ""
        self._logged_at = None
        return is_ours

    async def _attempt(self) -> bool:
        if self._held is not None and await self._has_written(self._held):
            return True
        lease = await self._client.get(LEASES, self._key)
        decision = decide(self._observe(lease), self.identity)
        if self._is_leading and not self._is_still_ours(decision):
            return False
        if decision is LeaseDecision.WAIT:
            return False
        return await self._has_written(lease) or self._is_leading

    def _observe(self, lease: Manifest | None) -> LeaseObservation | None:
        if lease is None:
            self._observation = None
        else:
            record = record_of(lease, default_s=self._timing.duration_s)
            gap_s = 2 * self._timing.attempt_interval_s + self._timing.call_timeout_s
            self._observation = observe(self._observation, record, self._clock.boottime(), longest_gap_s=gap_s)
        return self._observation

    def _is_still_ours(self, decision: LeaseDecision) -> bool:
        """Whether no other candidate has held the lease since this term began."""
        is_same = self._observation is not None and self._observation.record.transitions == self._transitions
        return decision is LeaseDecision.RENEW and is_same

    async def _has_written(self, lease: Manifest | None) -> bool:
        """Renew or acquire; protection starts when the request is sent. False: another candidate was faster."""
        sent_at = self._clock.boottime()
        moment = micro_time(self._clock.now())
        body = build_held(lease, self._key, self.identity, self._timing.duration_s, moment)
        self._held = None
        try:
            if lease is None:
                stored = await self._client.create(LEASES, body)
            else:
                stored = await self._client.replace(LEASES, self._key, body)
        except ApiStatusError as error:
            if error.status in (404, 409):
                return False
            raise
        self._held = stored
        self._transitions = record_of(stored, default_s=0).transitions
        self._renewed_at = sent_at
        self._is_leading = True
        return True

    async def _release(self) -> None:
        """Release the lease so that another replica can take it at once; the gate is closed before."""
        was_leading, self._is_leading = self._is_leading, False
        if not was_leading:
            return
        if open_s := self._unanswered_s():
            self._held = None
            log.warning(
                "lease %s is left to expire, because a write may still take effect for %.1f s", self._key, open_s
            )
            return
        try:
            lease = self._held or await self._client.get(LEASES, self._key)
            if lease is None or record_of(lease, default_s=0).holder != self.identity:
                return
            await self._client.replace(LEASES, self._key, build_released(lease, micro_time(self._clock.now())))
        except (ApiStatusError, ApiUnavailableError) as error:
            log.warning("lease %s not released, other replicas wait until it expires: %s", self._key, error)
        else:
            log.info("released lease %s", self._key)
        finally:
            self._held = None

    def _record_error(self, error: ApiStatusError | ApiUnavailableError) -> None:
        """Log the error, at most once a minute."""
        self._error = f"cannot acquire or renew lease {self._key}: {error}"
        now = self._clock.boottime()
        if self._logged_at is None or now - self._logged_at >= LOG_INTERVAL_S:
            self._logged_at = now
            log.warning("%s", self._error)


async def _end(term: "asyncio.Task[None]") -> None:
    """Cancel the task and wait until it has ended."""
    term.cancel()
    await asyncio.wait([term])
