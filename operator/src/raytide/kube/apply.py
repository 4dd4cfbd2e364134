"""How are the actions of a plan carried out?

Actions of one key go in, one `Outcome` each comes out. It records every create and delete in the overlay before it is
sent, guards every write by uid, never lets one refusal end the pass, and keeps a pass short: what is left over is
skipped and the key goes to the tail of the queue. Called by the controllers' shells; follows D6, D7 and D15.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raytide.api.actions import MOST_WRITES, Action, Create, Delete, Outcome, Patch, Result
from raytide.api.errors import Refused, Unavailable
from raytide.api.meta import Key, Manifest, Resource
from raytide.api.pod_trouble import NOT_OURS
from raytide.kube.client import Client
from raytide.kube.expectations import Expectations, Reader
from raytide.kube.slots import FairSlots, Window
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

BUDGET_ACTIONS: Final = 200
BUDGET_ALONE: Final = MOST_WRITES
"""While no other key is at work nobody gains from an end: what is under way has to run dry, and the next pass begins anew."""
BUDGET_S: Final = 2.0
GIVE_UP_AFTER: Final = 3
"""So many calls of one pass without an answer mean that the API is away: the rest is not tried."""
REFUSED_DELETES: Final = 10
"""A create is refused because of its group, a delete perhaps because of its pod alone: so many speak for the group."""


UNREAD: Final[Reader[None]] = Reader(read=lambda _body: None, view_of=lambda _object: None)
"""For kinds without an overlay: nobody looks at the answer."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a plan: one outcome per action, in order."""

    outcomes: tuple[Outcome, ...]
    is_cut_short: bool = False
    """The budget was spent with actions left, and something was achieved: look again at once (return 0.0)."""
    retry_after_s: float | None = None
    """The longest wish of a server that said "later"."""

    def of(self, *results: Result) -> Iterator[Outcome]:
        """The outcomes that ended so."""
        return (outcome for outcome in self.outcomes if outcome.result in results)


class _NameIsSpent(Unavailable):
    """A create's own object is on its way out again: its name must not be used a second time."""


@dataclass(slots=True)
class _Pass:
    """One call of `apply` while it lasts."""

    key: Key
    owner_uid: str
    windows: dict[Resource, Window]
    outcomes: list[Outcome | None]
    refused_groups: set[tuple[Resource, str]] = field(default_factory=set)
    refused_deletes: Counter[tuple[Resource, str]] = field(default_factory=Counter)
    unanswered: int = 0
    retry_after_s: float | None = None
    is_namespace_terminating: bool = False

    def is_pointless(self, action: Action) -> bool:
        """True for more of what was refused in a group, and for everything once the API or the namespace is gone."""
        if self.is_namespace_terminating or self.unanswered >= GIVE_UP_AFTER:
            return True
        group = action.resource, action.group
        if isinstance(action, Create):
            return group in self.refused_groups
        return isinstance(action, Delete) and self.refused_deletes[group] >= REFUSED_DELETES

    @property
    def has_achieved(self) -> bool:
        """Whether anything was done; going on in haste after refusals alone would be a hot loop (RM:I13)."""
        return any(outcome is not None and outcome.result is Result.DONE for outcome in self.outcomes)


class Executor:
    """Carries out the actions of many keys at once.

    - Every action gets exactly one outcome, in the order of the plan.
    - Of each kind a pass sends one request, then two, then four, up to 32 at a time, 8 in a crowd; each refusal halves
      that. A service that is on its way does not hold up the first pod.
    - All passes together hold `slots` requests at a time, and keys take turns.
    - A refused create skips further creates of the same group, ten refused deletes its further deletes; nothing else.
    - Three calls without an answer, or a namespace that is terminating, skip the rest of the pass.
    - A pass ends after 200 actions, 500 while no other key is at work, or 2 s; then `is_cut_short`, and the next pass goes
      on as fast as this one was. It is not called cut short when calls stayed without an answer, or nothing was done: that
      asks for back-off.
    - Creates and deletes are in the overlay before they are sent, and stay as long as their outcome is unknown.
    - `look_for` settles a create of unknown outcome by looking, without asking for it once more.
    - A create that is answered Conflict, or that what it refers to is not there, is tried again soon; it is no refusal.
    - A create that is answered AlreadyExists is done if the object is ours, of that group, and not terminating (D15).
    - A delete of what is gone, or of what is another object by now, is done.
    - A patch carries the uid it means, and the version if it has one; what it made of the object is in the overlay.
    - A patch that is answered Conflict, or whose version is gone with its object, is no refusal: look again.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        overlays: Mapping[Resource, Expectations[Any]],
        slots: int = 64,
        is_crowded: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_crowded`: whether other keys are at work at this moment."""
        self._client = client
        self._clock = clock
        self._overlays = overlays
        self._slots = FairSlots(slots)
        self._is_crowded = is_crowded
        self._widths: dict[Key, dict[Resource, int]] = {}
        """Of passes that were cut short: the next goes on as fast."""

    async def apply(self, actions: Sequence[Action], *, key: Key, owner_uid: str) -> Applied:
        """Carry out what the budget allows; the rest is SKIPPED."""
        widths = self._widths.pop(key, {})
        kinds = {action.resource for action in actions}
        windows = {kind: Window(widths.get(kind, 1), is_crowded=self._is_crowded) for kind in kinds}
        run = _Pass(key, owner_uid, windows, [None] * len(actions))
        ends_at = self._clock.monotonic() + BUDGET_S
        sent = 0
        is_cut_short = False
        async with asyncio.TaskGroup() as tasks:
            for position, action in enumerate(actions):
                window = windows[action.resource]
                await window.enter()
                if run.is_pointless(action):
                    window.withdraw()
                    continue
                if sent >= self._budget() or self._clock.monotonic() >= ends_at:
                    is_cut_short = not run.unanswered
                    break
                sent += 1
                tasks.create_task(self._one(run, position, action))
        is_cut_short = is_cut_short and run.has_achieved
        if is_cut_short:
            self._widths[key] = {kind: window.width for kind, window in windows.items()}
        outcomes = (done or Outcome(action, Result.SKIPPED) for action, done in zip(actions, run.outcomes, strict=True))
        return Applied(tuple(outcomes), is_cut_short, run.retry_after_s)

    def _budget(self) -> int:
        return BUDGET_ACTIONS if self._is_crowded() else BUDGET_ALONE

    async def look_for(self, create: Create, *, key: Key, owner_uid: str) -> None:
        """Settle a create of unknown outcome without sending it again: with one GET, if anybody answers.

        For what nobody wants any more: repeating it would make a pod only to delete it. Raises `Unavailable` when nobody
        answers, so that a pass does not wait for a dead API once per pod.
        """
        overlay = self._overlays[create.resource]
        try:
            live = await self._client.get(create.resource, _key(create))
        except (Refused, Unavailable) as trouble:
            log.info("cannot tell yet whether %s was created: %s", create.name, trouble)
            overlay.doubted(key, owner_uid, create)
            if isinstance(trouble, Unavailable):
                raise
            return
        if live is not None and _is_same_intention(create, live, owner_uid):
            overlay.accepted(key, owner_uid, create, overlay.reader.view_of(live))
        else:
            overlay.refused(key, owner_uid, create)

    def forget(self, key: Key) -> None:
        """The owner is gone: keep nothing about it."""
        self._widths.pop(key, None)
        for overlay in self._overlays.values():
            overlay.forget(key)

    async def _one(self, run: _Pass, position: int, action: Action) -> None:
        """Send it and note its outcome, whatever happens."""
        window = run.windows[action.resource]
        async with self._slots.hold(run.key):
            if run.is_pointless(action):
                window.withdraw()
                return
            try:
                outcome = await self._send(run, action)
            except Unavailable as trouble:
                outcome = self._unanswered(run, action, trouble)
            except Refused as refused:
                outcome = self._refused(run, action, refused)
        run.outcomes[position] = outcome
        window.leave(is_success=outcome.result is Result.DONE)

    async def _send(self, run: _Pass, action: Action) -> Outcome:
        overlay = self._overlays.get(action.resource)
        if isinstance(action, Patch):
            live = await self._patch(action)
            if overlay is not None:
                overlay.patched(run.key, run.owner_uid, overlay.reader.view_of(live))
        elif overlay is not None:
            await self._tracked(overlay, run, action)
        else:
            await self._carry_out(UNREAD, run, action)
        return Outcome(action, Result.DONE)

    async def _tracked(self, overlay: Expectations[Any], run: _Pass, action: Create | Delete) -> None:
        """Carry it out with the overlay knowing at every moment what may have happened (D6)."""
        entry = run.key, run.owner_uid, action
        was_doubtful = overlay.is_doubtful(*entry)
        overlay.sending(*entry)
        try:
            live = await self._carry_out(overlay.reader, run, action)
        except _NameIsSpent:
            overlay.refused(*entry)
            raise
        except Refused:
            if not (was_doubtful and await self._may_have_happened(run, action)):
                overlay.refused(*entry)
            raise
        except Unavailable as trouble:
            (overlay.doubted if trouble.is_outcome_unknown or was_doubtful else overlay.refused)(*entry)
            raise
        except BaseException:  # cancelled while waiting for the answer, or a bug while reading it
            overlay.doubted(*entry)
            raise
        overlay.accepted(*entry, live)

    async def _carry_out(self, reader: Reader[Any], run: _Pass, action: Create | Delete) -> Any:
        if isinstance(action, Create):
            return await self._create(reader, run, action)
        return await self._delete(reader, action)

    async def _create(self, reader: Reader[Any], run: _Pass, action: Create) -> Any:
        """The view of the object as it is now."""
        try:
            return await self._client.create_as(reader.read, action.resource, action.manifest)
        except Refused as refused:
            if not refused.is_already_exists:
                # Two creates at once met at a quota's counter, or a role just made is not known everywhere yet: nobody
                # said no.
                if refused.status == 409 or refused.is_not_found:
                    raise Unavailable(f"{action.name} could not be created just now: {refused}") from refused
                raise
            live = await self._client.get(action.resource, _key(action))
            if live is not None and not _is_same_intention(action, live, run.owner_uid):
                raise Refused(refused.status, refused.reason, _whose(refused, live)) from refused
            if live is None or live["metadata"].get("deletionTimestamp"):
                raise _NameIsSpent(f"{action.name} exists and is about to vanish") from refused
            return reader.view_of(live)

    async def _delete(self, reader: Reader[Any], action: Delete) -> Any:
        """The view of the object as it is now, None when it is gone for good."""
        try:
            return await self._client.delete_as(reader.read, action.resource, _key(action), action.uid)
        except Refused as refused:
            if refused.is_not_found:
                return None
            if refused.status != 409:
                raise
            live = await self._client.get(action.resource, _key(action))
            if live is None or live["metadata"].get("uid") != action.uid:
                return None
            raise Unavailable(f"{action.name} could not be deleted just now: {refused}") from refused

    async def _patch(self, action: Patch) -> Manifest:
        """The object as it is now; Unavailable when it is not the one that was read any more."""
        try:
            return await self._client.patch(action.resource, _key(action), _guarded(action))
        except Refused as refused:
            if refused.status == 409 or (action.version and refused.is_not_found):
                raise Unavailable(f"{action.name} was not patched, it has changed: {refused}") from refused
            raise

    async def _may_have_happened(self, run: _Pass, action: Create | Delete) -> bool:
        """A repeat was refused: was the first sending successful? If nobody answers, perhaps."""
        if isinstance(action, Delete):
            return False
        try:
            live = await self._client.get(action.resource, _key(action))
        except (Refused, Unavailable):
            return True
        return live is not None and _is_same_intention(action, live, run.owner_uid)

    def _unanswered(self, run: _Pass, action: Action, trouble: Unavailable) -> Outcome:
        run.unanswered += 1
        if trouble.retry_after_s is not None:
            run.retry_after_s = max(trouble.retry_after_s, run.retry_after_s or 0.0)
        result = Result.UNKNOWN if trouble.is_outcome_unknown else Result.UNAVAILABLE
        return Outcome(action, result, reason="Unavailable", message=str(trouble))

    def _refused(self, run: _Pass, action: Action, refused: Refused) -> Outcome:
        if refused.is_namespace_terminating:
            run.is_namespace_terminating = True
            return Outcome(action, Result.SKIPPED, reason=refused.reason, message=refused.message)
        if isinstance(action, Create):
            run.refused_groups.add((action.resource, action.group))
        elif isinstance(action, Delete):
            run.refused_deletes[action.resource, action.group] += 1
        log.info("refused %s %s: %s", action.resource.kind, _key(action), refused)
        return Outcome(action, Result.REFUSED, reason=refused.reason, message=refused.message)


def _key(action: Action) -> Key:
    if isinstance(action, Create):
        return Key(action.manifest["metadata"].get("namespace", ""), action.name)
    return Key(action.namespace, action.name)


def _guarded(action: Patch) -> Manifest:
    """The body with its preconditions.

    The API answers Invalid ("field is immutable") to another uid, and before that Conflict to another resourceVersion.
    """
    preconditions = {"uid": action.uid} | ({"resourceVersion": action.version} if action.version else {})
    return {**action.body, "metadata": {**action.body.get("metadata", {}), **preconditions}}


def _whose(refused: Refused, live: Manifest) -> str:
    """The API's words, and to whom the object belongs that has the name already."""
    owner = next((owner for owner in live["metadata"].get("ownerReferences", ()) if owner.get("controller")), None)
    whose = f"it belongs to {owner.get('kind')} {owner.get('name')}" if owner else "nobody owns it"
    return f"{refused.message}, {NOT_OURS}: {whose}"


def _is_same_intention(action: Create, live: Manifest, owner_uid: str) -> bool:
    """True if `live` is what this very create made: our owner, and for members of a group all of our labels."""
    metadata = live["metadata"]
    if all(owner.get("uid") != owner_uid for owner in metadata.get("ownerReferences", ())):
        return False
    wanted = action.manifest["metadata"].get("labels", {}) if action.group else {}
    is_member: bool = wanted.items() <= metadata.get("labels", {}).items()
    return is_member
