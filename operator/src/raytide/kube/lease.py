"""When is this process the one that may write?

The small loop around the verdicts of `api/lease`: it acquires and renews one Lease and runs `lead` while it is held. It
promises that no two electors have an open write gate at the same moment, whatever their wall clocks say: losing the API
closes the gate by itself, losing the lease ends the term but not the process. Run by main.py, which gives the gate to
`kube/client`; rules D10, RM:I10.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias

from raytide.api.errors import Refused, Unavailable
from raytide.api.lease import (
    LeaseTiming,
    Sighting,
    Verdict,
    build_held,
    build_released,
    decide,
    record_of,
    sight,
)
from raytide.api.meta import LEASES, Key, Manifest, micro_time
from raytide.kube.client import Client
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

Lead: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""What is done in a term: cancelled when the lease is lost; when it returns, the lease is given back for good."""
REMIND_EVERY_S: Final = 60.0


class Elector:
    """One candidate for one lease.

    - `may_write_s` is the gate: seconds until the last renewal stops protecting us, counted from when it was sent; zero
      for whoever does not hold the lease.
    - A lease that names us is ours, so that a restarted container goes on at once; one that names nobody is taken;
      one of somebody else only after it was watched unchanged for as long as it says.
    - While the API is away the gate closes by itself, the term goes on, and the gate opens with the next renewal.
    - Once somebody else has held the lease the gate is closed, the term is cancelled, and a new one begins only when the
      old one has ended entirely.
    - An ordered end, or trouble in a term, gives the lease back, after the last write. With a write unanswered it is left to
      run out: the API server may still carry that write out, and by then another replica would lead (FD:REL-D).
    """

    def __init__(
        self, client: Client, key: Key, *, identity: str, clock: Clock, timing: LeaseTiming | None = None
    ) -> None:
        """`client` must not be gated, and better has connections of its own."""
        self.identity = identity
        self.terms = 0
        """How many terms were begun."""
        self.has_looked = asyncio.Event()
        """Set after the first attempt, whatever came of it."""
        self._client = client
        self._key = key
        self._clock = clock
        self._timing = timing or LeaseTiming()
        self._stopping = asyncio.Event()
        self._sighting: Sighting | None = None
        self._held: Manifest | None = None
        """The Lease as our last write left it; None when somebody may have changed it since."""
        self._unanswered_s: Callable[[], float] = lambda: 0.0
        self._is_leading = False
        self._transitions = 0
        self._renewed_at = 0.0
        self._turn_at = clock.boottime()
        """When the last turn began."""
        self._reminded_at: float | None = None
        self._trouble = ""

    # --- told to others ----------------------------------------------------------------------------------------------

    @property
    def is_leading(self) -> bool:
        """Whether a term is going on; its gate may be closed all the same."""
        return self._is_leading

    def may_write_s(self) -> float:
        """How long a write that starts now may take."""
        if not self._is_leading:
            return 0.0
        return max(0.0, self._renewed_at + self._timing.renew_deadline_s - self._clock.boottime())

    def renewed_s(self) -> float:
        """Seconds since our last renewal; 0 when we do not hold the lease."""
        return self._clock.boottime() - self._renewed_at if self._is_leading else 0.0

    def idle_s(self) -> float:
        """Seconds since the loop last did anything: it is stuck if they are many."""
        return self._clock.boottime() - self._turn_at

    def words(self) -> str:
        """How it stands, for the endpoints."""
        trouble = f"; {self._trouble}" if self._trouble else ""
        if self._is_leading:
            return f"held, renewed {self.renewed_s():.1f} s ago, may write for {self.may_write_s():.1f} s{trouble}"
        holder = self._sighting.record.holder if self._sighting else ""
        return f"standby, {f'held by {holder}' if holder else 'not held yet'}{trouble}"

    # --- running -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Do not wait for the lease any longer; a term that goes on ends by itself."""
        self._stopping.set()

    async def run(self, lead: Lead, *, unanswered_s: Callable[[], float]) -> None:
        """Lead whenever the lease is ours, until stopped.

        `unanswered_s`: for how many seconds a write of the term may still be carried out (`Client.unanswered_s`).
        """
        self._unanswered_s = unanswered_s
        try:
            while not self._stopping.is_set():
                if await self._is_ours():
                    if await self._reign(lead):
                        return
                else:
                    self.has_looked.set()
                    await self._rest()
        finally:
            self.has_looked.set()

    async def _reign(self, lead: Lead) -> bool:
        """One term; True when it ended in order, False when the lease was lost."""
        self.terms += 1
        log.info("this is the leader now, term %d: lease %s, held as %s", self.terms, self._key, self.identity)
        term = asyncio.get_running_loop().create_task(lead())
        self.has_looked.set()  # after the term's task was made: it is the first to ask for lists (D6)
        is_lost = False
        try:
            while not (term.done() or is_lost):
                wait_s = self._turn_at + self._timing.retry_s - self._clock.boottime()
                await asyncio.wait([term], timeout=max(0.0, wait_s))
                is_lost = not term.done() and not await self._is_ours()
        finally:
            if is_lost:
                self._is_leading = False  # the gate is closed before anything else happens
            await _end(term)
            await self._give_back()
        if is_lost:
            log.warning("the lease %s was lost, this term is over: %s", self._key, self.words())
            return False
        term.result()
        return True

    async def _rest(self) -> None:
        """Until the next look: sooner when the lease is about to run out."""
        wait_s = self._timing.look_s
        if self._sighting is not None and not self._trouble:
            wait_s = min(wait_s, max(0.01, self._sighting.record.duration_s - self._sighting.unchanged_s))
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):  # wait_for may swallow a cancellation before Python 3.12
                await self._stopping.wait()

    async def _is_ours(self) -> bool:
        """One turn: renew or acquire if that is possible; False when the lease is surely not ours.

        Without an answer nothing has changed: a leader stays one, with a gate that closes.
        """
        self._turn_at = self._clock.boottime()
        try:
            is_ours = await self._turn()
        except (Refused, Unavailable) as trouble:
            self._held = None
            self._note(trouble)
            return self._is_leading
        self._trouble = ""
        self._reminded_at = None
        return is_ours

    async def _turn(self) -> bool:
        if self._held is not None and await self._has_written(self._held):
            return True
        lease = await self._client.get(LEASES, self._key)
        verdict = decide(self._look(lease), self.identity)
        if self._is_leading and not self._is_still_ours(verdict):
            return False
        if verdict is Verdict.WAIT:
            return False
        return await self._has_written(lease) or self._is_leading

    def _look(self, lease: Manifest | None) -> Sighting | None:
        if lease is None:
            self._sighting = None
        else:
            record = record_of(lease, default_s=self._timing.duration_s)
            gap_s = 2 * self._timing.look_s + self._timing.call_timeout_s
            self._sighting = sight(self._sighting, record, self._clock.boottime(), longest_gap_s=gap_s)
        return self._sighting

    def _is_still_ours(self, verdict: Verdict) -> bool:
        """Nobody has held it since this term began."""
        is_same = self._sighting is not None and self._sighting.record.transitions == self._transitions
        return verdict is Verdict.RENEW and is_same

    async def _has_written(self, lease: Manifest | None) -> bool:
        """Renew or acquire; protected from the moment at which the request is sent. False: another was faster."""
        sent_at = self._clock.boottime()
        moment = micro_time(self._clock.now())
        body = build_held(lease, self._key, self.identity, self._timing.duration_s, moment)
        self._held = None
        try:
            if lease is None:
                stored = await self._client.create(LEASES, body)
            else:
                stored = await self._client.replace(LEASES, self._key, body)
        except Refused as refused:
            if refused.status in (404, 409):
                return False
            raise
        self._held = stored
        self._transitions = record_of(stored, default_s=0).transitions
        self._renewed_at = sent_at
        self._is_leading = True
        return True

    async def _give_back(self) -> None:
        """Let another have it at once; the gate is closed before the request is sent."""
        was_leading, self._is_leading = self._is_leading, False
        if not was_leading:
            return
        if open_s := self._unanswered_s():
            self._held = None
            log.warning(
                "the lease %s runs out by itself: a write may still be carried out for %.1f s", self._key, open_s
            )
            return
        try:
            lease = self._held or await self._client.get(LEASES, self._key)
            if lease is None or record_of(lease, default_s=0).holder != self.identity:
                return
            await self._client.replace(LEASES, self._key, build_released(lease, micro_time(self._clock.now())))
        except (Refused, Unavailable) as trouble:
            log.warning("the lease %s could not be given back, others have to wait: %s", self._key, trouble)
        else:
            log.info("the lease %s was given back", self._key)
        finally:
            self._held = None

    def _note(self, trouble: Refused | Unavailable) -> None:
        """Say it, but not every few seconds."""
        self._trouble = f"no success with lease {self._key}: {trouble}"
        now = self._clock.boottime()
        if self._reminded_at is None or now - self._reminded_at >= REMIND_EVERY_S:
            self._reminded_at = now
            log.warning("%s", self._trouble)


async def _end(term: "asyncio.Task[None]") -> None:
    """Cancel it and wait until nothing of it runs any more."""
    term.cancel()
    await asyncio.wait([term])
