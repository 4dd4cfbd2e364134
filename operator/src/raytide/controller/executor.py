"""Executor: sends the actions of a plan to the API server.

Takes the actions of one key and returns one `Outcome` each. Every create and delete is recorded in the expectations
before it is sent, every write is guarded by uid, and a rejected write does not end the pass. Passes are short: leftover
actions are skipped and the key is requeued. Used by the controllers' reconcilers; D6, D7, D15.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from raytide.api.actions import MAX_WRITES, Action, Create, Delete, Outcome, Patch, Result
from raytide.api.errors import ApiStatusError, ApiUnavailableError
from raytide.api.meta import Key, Manifest, Resource
from raytide.api.pod_failure import NOT_OURS
from raytide.controller.expectations import Expectations, ViewDecoder
from raytide.controller.fair_semaphore import FairSemaphore, Window
from raytide.kube.client import Client
from raytide.runtime.clock import Clock

log = logging.getLogger(__name__)

BUDGET_ACTIONS: Final = 200
BUDGET_ALONE: Final = MAX_WRITES
"""Budget while no other key is being reconciled: ending the pass early would only drain the window and start again."""
BUDGET_S: Final = 2.0
MAX_UNANSWERED: Final = 3
"""After this many unanswered calls in one pass the API server counts as unavailable and the rest is skipped."""
MAX_REJECTED_DELETES: Final = 10
"""A create is rejected for its group, a delete possibly for its pod only: this many rejections hold for the group."""


NO_DECODER: Final[ViewDecoder[None]] = ViewDecoder(read=lambda _body: None, view_of=lambda _object: None)
"""Reader for kinds without expectations: the answer is not decoded."""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """Result of `apply`: one outcome per action, in order."""

    outcomes: tuple[Outcome, ...]
    is_cut_short: bool = False
    """The budget was exhausted with actions left, and at least one action succeeded: requeue at once (return 0.0)."""
    retry_after_s: float | None = None
    """The longest Retry-After in seconds that the server sent."""

    def of(self, *results: Result) -> Iterator[Outcome]:
        """The outcomes with one of these results."""
        return (outcome for outcome in self.outcomes if outcome.result in results)


class _NameTakenError(ApiUnavailableError):
    """The object of an own create is already terminating: its name must not be used again."""


@dataclass(slots=True)
class _Pass:
    """State of one call of `apply`."""

    key: Key
    owner_uid: str
    windows: dict[Resource, Window]
    outcomes: list[Outcome | None]
    rejected_groups: set[tuple[Resource, str]] = field(default_factory=set)
    rejected_deletes: Counter[tuple[Resource, str]] = field(default_factory=Counter)
    unanswered: int = 0
    retry_after_s: float | None = None
    is_namespace_terminating: bool = False

    def is_pointless(self, action: Action) -> bool:
        """Whether to skip the action: its group was rejected, or the API server or the namespace is unavailable."""
        if self.is_namespace_terminating or self.unanswered >= MAX_UNANSWERED:
            return True
        group = action.resource, action.group
        if isinstance(action, Delete):
            return self.rejected_deletes[group] >= MAX_REJECTED_DELETES
        return group in self.rejected_groups

    @property
    def has_achieved(self) -> bool:
        """Whether any action succeeded; requeueing at once after rejections alone would be a hot loop (RM:I13)."""
        return any(outcome is not None and outcome.result is Result.DONE for outcome in self.outcomes)


class Executor:
    """Sends the actions of many keys concurrently.

    - Every action gets exactly one outcome, in the order of the plan.
    - Per kind, a pass has one request in flight, then two, then four, up to 32, or 8 while other keys are being
      reconciled; each failure halves that. Kinds have separate windows: a Service create does not delay the first pod.
    - All passes together have at most `slots` requests in flight, shared round-robin among keys.
    - A rejected create or patch skips further ones of its group, ten rejected deletes its further deletes; nothing else.
    - Three unanswered calls, or a terminating namespace, skip the rest of the pass.
    - A pass ends after 200 actions (500 while no other key is being reconciled) or 2 s; `is_cut_short` is set and the
      next pass starts with the same window. It is not set, for backoff, if a call was unanswered or nothing succeeded.
    - Creates and deletes are in the expectations before they are sent, and while their outcome is unknown.
    - `look_for` settles a create of unknown outcome with a GET instead of a second POST.
    - A create answered with Conflict, or NotFound for something it refers to, is retried soon and is no rejection.
    - A create answered with an object that lacks our labels or owner (a webhook removed them) is rejected, and the object
      is deleted: no informer would show it, and it would be created again without end.
    - A create answered with AlreadyExists is done if the object has our owner and group and is not terminating (D15).
    - A delete of an absent object, or of another object of that name, is done.
    - A patch carries the uid, and the resourceVersion if it has one; its result is recorded in the expectations.
    - A patch answered with Conflict, or with NotFound although it has a version, is `ApiUnavailableError` and no rejection.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        overlays: Mapping[Resource, Expectations[Any]],
        slots: int = 64,
        is_contended: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_contended` returns whether other keys are being reconciled now."""
        self._client = client
        self._clock = clock
        self._overlays = overlays
        self._slots = FairSemaphore(slots)
        self._is_contended = is_contended
        self._widths: dict[Key, dict[Resource, int]] = {}
        """Window widths of passes that were cut short; the next pass starts with them."""

    async def apply(self, actions: Sequence[Action], *, key: Key, owner_uid: str) -> ApplyResult:
        """Send the actions that the budget permits; the rest is SKIPPED."""
        widths = self._widths.pop(key, {})
        kinds = {action.resource for action in actions}
        windows = {kind: Window(widths.get(kind, 1), is_contended=self._is_contended) for kind in kinds}
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
                tasks.create_task(self._run_action(run, position, action))
        is_cut_short = is_cut_short and run.has_achieved
        if is_cut_short:
            self._widths[key] = {kind: window.width for kind, window in windows.items()}
        outcomes = (done or Outcome(action, Result.SKIPPED) for action, done in zip(actions, run.outcomes, strict=True))
        return ApplyResult(tuple(outcomes), is_cut_short, run.retry_after_s)

    def _budget(self) -> int:
        return BUDGET_ACTIONS if self._is_contended() else BUDGET_ALONE

    async def look_for(self, create: Create, *, key: Key, owner_uid: str) -> None:
        """Settle a create of unknown outcome with one GET instead of sending it again.

        For unwanted pods, which a repeated create would make only to delete them. Raises `ApiUnavailableError` when the API
        server does not answer, so that a pass does not wait for it once per pod.
        """
        overlay = self._overlays[create.resource]
        try:
            live = await self._client.get(create.resource, _key(create))
        except (ApiStatusError, ApiUnavailableError) as error:
            log.info("outcome of creating %s %s is still unknown: %s", create.resource.kind, create.name, error)
            overlay.lookup_failed(key, owner_uid, create)
            if isinstance(error, ApiUnavailableError):
                raise
            return
        if live is None:
            overlay.not_found(key, owner_uid, create)
        elif _is_result_of(create, live, owner_uid):
            overlay.accepted(key, owner_uid, create, overlay.reader.view_of(live))
        else:
            overlay.rejected(key, owner_uid, create)

    def forget(self, key: Key) -> None:
        """Drop the window widths and the expectations of a deleted owner."""
        self._widths.pop(key, None)
        for overlay in self._overlays.values():
            overlay.forget(key)

    async def _run_action(self, run: _Pass, position: int, action: Action) -> None:
        """Send one action and record its outcome."""
        window = run.windows[action.resource]
        async with self._slots.hold(run.key):
            if run.is_pointless(action):
                window.withdraw()
                return
            try:
                await self._send(run, action)
                outcome = Outcome(action, Result.DONE)
            except ApiUnavailableError as error:
                outcome = self._unanswered(run, action, error)
            except ApiStatusError as error:
                outcome = self._rejected(run, action, error)
        run.outcomes[position] = outcome
        window.leave(is_success=outcome.result is Result.DONE)

    async def _send(self, run: _Pass, action: Action) -> None:
        """Send one action with the expectations of its kind, if it has any, up to date at every moment (D6)."""
        overlay = self._overlays.get(action.resource)
        if isinstance(action, Patch):
            live = await self._patch(action)
            if overlay is not None:
                overlay.patched(run.key, run.owner_uid, overlay.reader.view_of(live))
            return
        reader = NO_DECODER if overlay is None else overlay.reader
        write = self._create(reader, run, action) if isinstance(action, Create) else self._delete(reader, action)
        if overlay is None:
            await write
            return
        entry = run.key, run.owner_uid, action
        was_unknown = overlay.is_outcome_unknown(*entry)
        overlay.sending(*entry)
        try:
            live = await write
        except _NameTakenError:
            overlay.rejected(*entry)
            raise
        except ApiStatusError:
            if was_unknown and isinstance(action, Create):
                await self._settle_rejected(overlay, run, action)
            else:
                overlay.rejected(*entry)
            raise
        except ApiUnavailableError as error:
            (overlay.outcome_unknown if error.is_outcome_unknown or was_unknown else overlay.rejected)(*entry)
            raise
        except BaseException:  # cancelled while waiting for the answer, or a bug in decoding it
            overlay.outcome_unknown(*entry)
            raise
        overlay.accepted(*entry, live)

    async def _create(self, reader: ViewDecoder[Any], run: _Pass, action: Create) -> Any:
        """Create the object; returns its current view."""
        try:
            live = await self._client.create_and_decode(reader.read, action.resource, action.manifest)
        except ApiStatusError as error:
            if not error.is_already_exists:
                # Concurrent creates conflicted on a ResourceQuota, or a new Role has not reached all API servers yet:
                # no rejection.
                if error.status == 409 or error.is_not_found:
                    raise ApiUnavailableError(
                        f"{action.resource.kind} {action.name} was not created, the create is retried: {error}"
                    ) from error
                raise
            live = await self._client.get(action.resource, _key(action))
            if live is not None and not _is_result_of(action, live, run.owner_uid):
                raise ApiStatusError(error.status, error.reason, _name_conflict(error, live)) from error
            if live is None or live["metadata"].get("deletionTimestamp"):
                raise _NameTakenError(
                    f"{action.resource.kind} {action.name} already exists and is terminating"
                ) from error
            return reader.view_of(live)
        if lost := _lost_identity(reader, action, live):
            with suppress(ApiStatusError, ApiUnavailableError):
                await self._client.delete(action.resource, _key(action), live.uid)
            message = (
                f"admission removed or changed {', '.join(lost)} of {action.resource.kind} {action.name}, which was deleted again; "
                "exempt it from the mutating webhook or policy"
            )
            raise ApiStatusError(422, "Invalid", message)
        return live

    async def _delete(self, reader: ViewDecoder[Any], action: Delete) -> Any:
        """Delete the object; returns its current view, None when it is gone."""
        try:
            return await self._client.delete_and_decode(reader.read, action.resource, _key(action), action.uid)
        except ApiStatusError as error:
            if error.is_not_found:
                return None
            if error.status != 409:
                raise
            live = await self._client.get(action.resource, _key(action))
            if live is None or live["metadata"].get("uid") != action.uid:
                return None
            raise ApiUnavailableError(
                f"{action.resource.kind} {action.name} was not deleted, the delete is retried: {error}"
            ) from error

    async def _patch(self, action: Patch) -> Manifest:
        """Patch the object and return it; `ApiUnavailableError` if it changed or was replaced since it was read."""
        try:
            return await self._client.patch(action.resource, _key(action), _guarded(action))
        except ApiStatusError as error:
            if error.status == 409 or (action.version and error.is_not_found):
                raise ApiUnavailableError(
                    f"{action.resource.kind} {action.name} was not patched, it changed since it was read: {error}"
                ) from error
            raise

    async def _settle_rejected(self, overlay: Expectations[Any], run: _Pass, create: Create) -> None:
        """A repeat was rejected: find out by a GET whether the first send succeeded; unknown if it is not answered."""
        try:
            live = await self._client.get(create.resource, _key(create))
        except (ApiStatusError, ApiUnavailableError):
            return
        if live is None:
            overlay.not_found(run.key, run.owner_uid, create)
        elif not _is_result_of(create, live, run.owner_uid):
            overlay.rejected(run.key, run.owner_uid, create)

    def _unanswered(self, run: _Pass, action: Action, error: ApiUnavailableError) -> Outcome:
        run.unanswered += 1
        if error.retry_after_s is not None:
            run.retry_after_s = max(error.retry_after_s, run.retry_after_s or 0.0)
        result = Result.UNKNOWN if error.is_outcome_unknown else Result.UNAVAILABLE
        return Outcome(action, result, reason="Unavailable", message=str(error))

    def _rejected(self, run: _Pass, action: Action, error: ApiStatusError) -> Outcome:
        if error.is_namespace_terminating:
            run.is_namespace_terminating = True
            return Outcome(action, Result.SKIPPED, reason=error.reason, message=error.message)
        if isinstance(action, Delete):
            run.rejected_deletes[action.resource, action.group] += 1
        else:
            run.rejected_groups.add((action.resource, action.group))
        verb = type(action).__name__.lower()
        log.info("API server rejected %s of %s %s: %s", verb, action.resource.kind, _key(action), error)
        return Outcome(action, Result.REJECTED, reason=error.reason, message=error.message)


def _key(action: Action) -> Key:
    if isinstance(action, Create):
        return Key(action.manifest["metadata"].get("namespace", ""), action.name)
    return Key(action.namespace, action.name)


def _guarded(action: Patch) -> Manifest:
    """The body with its preconditions.

    The API server rejects another uid as Invalid ("field is immutable"), and before that another resourceVersion as
    Conflict.
    """
    preconditions = {"uid": action.uid} | ({"resourceVersion": action.version} if action.version else {})
    return {**action.body, "metadata": {**action.body.get("metadata", {}), **preconditions}}


def _name_conflict(error: ApiStatusError, live: Manifest) -> str:
    """The API server's message, and the owner of the object that already has the name."""
    owner = next((owner for owner in live["metadata"].get("ownerReferences", ()) if owner.get("controller")), None)
    owned_by = f"it is controlled by {owner.get('kind')} {owner.get('name')}" if owner else "it has no controller"
    return f"{error.message}, {NOT_OURS}: {owned_by}"


def _lost_identity(reader: ViewDecoder[Any], action: Create, live: Any) -> list[str]:
    """Names of the labels, or of the owner, by which the created object would be found again and which it lacks."""
    wanted, found = reader.identity_of(reader.view_of(action.manifest)), reader.identity_of(live)
    return [name for name, value in wanted.items() if value not in ("", None) and found.get(name) != value]


def _is_result_of(action: Create, live: Manifest, owner_uid: str) -> bool:
    """Whether `live` is the result of this create: it has our owner, and for members of a group all of our labels."""
    metadata = live["metadata"]
    if all(owner.get("uid") != owner_uid for owner in metadata.get("ownerReferences", ())):
        return False
    wanted = action.manifest["metadata"].get("labels", {}) if action.group else {}
    is_member: bool = wanted.items() <= metadata.get("labels", {}).items()
    return is_member
