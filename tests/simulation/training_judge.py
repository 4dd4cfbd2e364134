"""What must hold at every write about a TrainingJob?

A judge between the operator and the API, as invariants.py is for RayClusters: it remembers what every version of a job
asked for and which one an operator had read, and counts pods and room in the store itself. Trainers stay within their
bounds, leave in order and never for nothing; sizes are written by the sharing pass alone, no more often than a job's
cooldown, and growth only into room that is free; what was planned is no failure. Rules RM:I3, I5, I7 to I9, I13, I25.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from raytide.api import trainingjob_constants as constants
from raytide.api.quantity import to_millis

from simulation.census import ENDED
from simulation.invariants import Notes
from simulation.training_census import JobCensus
from simulation.training_wishes import JobWish, given_up, job_wish, record_of
from simulation.training_world import JOBS, TrainingWorld
from simulation.world import node_of

UNSEEN_S = 30.0
"""After a stranger came or a machine changed, the operator may not know of it for so long."""
AT_ONCE_S = 1.0
"""Deletes that were asked for within so long may all be on their way."""
LONGEST_WAY_S = 12.0
"""From a decision to the store: ten seconds are its sender's patience, one the fraction that a record leaves out, and one is
for the way."""
BEGINS = ("Admitted", "ReachingMinimum")
GROWS = ("Admitted", "Growing", "Rebalanced")
TAKEN = ("Reclaimed", "Rebalanced")


class TrainingJudge(Notes):
    """What is wanted and what was done, for all operators together."""

    plural = "trainingjobs"

    def __init__(
        self, world: TrainingWorld, census: JobCensus, *, holder: Callable[[], str | None] | None = None
    ) -> None:
        super().__init__(world, holder=holder)
        self.world: TrainingWorld = world
        self.census = census
        self.wishes: dict[str, list[JobWish]] = defaultdict(list)
        self.names: dict[str, str] = {}
        self._read: dict[str, dict[str, int]] = defaultdict(dict)
        self._generation_read: dict[str, int] = defaultdict(int)
        self._wish_at: dict[tuple[str, str], int] = {}
        self._grown: Counter[tuple[str, str]] = Counter()
        self._late: Counter[tuple[str, str]] = Counter()
        self._taken: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
        self._resized_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}
        """When somebody wrote another size; the note of it may be on its way for long."""
        self._before: dict[str, Mapping[str, Any]] = {}
        world.store.subscribe(self._on_job, JOBS)
        world.store.subscribe(self._on_pod, "pods")

    def _now_s(self) -> float:
        return self.world._loop.time()

    # --- what is wanted ----------------------------------------------------------------------------------------------
    def _on_job(self, change: Any) -> None:
        obj = change.entry.shared()
        metadata = obj["metadata"]
        uid, wish = metadata["uid"], job_wish(obj)
        wishes, before = self.wishes[uid], self._before.get(uid)
        self.names[uid] = f"{metadata['namespace']}/{metadata['name']}"
        if not wishes or wishes[-1] != wish:
            was = wishes[-1].counts if wishes else {}
            for role, count in wish.counts.items():
                self._grown[uid, role] += max(0, count - was.get(role, 0))
            wishes.append(wish)
        self._wish_at[uid, metadata["resourceVersion"]] = len(wishes) - 1
        self._before[uid] = obj
        if before is not None and record_of(before) != record_of(obj):
            self._judge_resize(uid, before, obj)
        elif before is not None and _size_of(before) != _size_of(obj):
            self._asked_at[uid] = self._now_s()
        self._judge_status(uid, before, obj)

    def note_read(self, identity: str, metadata: dict[str, Any]) -> None:
        """An operator has read a job as it is, or as it was."""
        uid = metadata["uid"]
        self._read[uid][identity] = self._wish_at[uid, metadata["resourceVersion"]]
        self._generation_read[uid] = max(self._generation_read[uid], metadata["generation"])

    def expect_late(self, body: bytes | None) -> None:
        """A create commits long after its sender gave up, and perhaps after its sender was killed."""
        obj = msgspec.json.decode(body) if body else {}
        if obj.get("kind") == "Pod":
            owner, role = obj["metadata"]["ownerReferences"][0]["uid"], obj["metadata"]["labels"][constants.ROLE_LABEL]
            self._late[owner, role] += 1

    def _known(self, uid: str) -> list[JobWish]:
        """What some operator may still believe: from the wish that it read last on."""
        return self.wishes[uid][min(self._read[uid].values(), default=0) :]

    # --- who comes and goes ------------------------------------------------------------------------------------------
    def _on_pod(self, change: Any) -> None:
        if change.type != "ADDED":
            return
        labels, uid = change.entry.labels, next((each for each in change.entry.owners if each in self.wishes), None)
        if uid is None:
            return
        role, index = labels.get(constants.ROLE_LABEL, ""), labels.get(constants.INDEX_LABEL, "")
        late, whose = self._late[uid, role], f"{self.names[uid]}/{role}"
        most = max((wish.counts.get(role, 0) for wish in self._known(uid)), default=0)
        alive = len(self.census.live_in(uid, role))
        made = self.census.made[uid, role]
        if alive > most + late:
            self._note_count(f"{alive} live pods of {whose}, wanted at most {most}")
        if made > (reasons := self._grown[uid, role] + self.census.ended[uid, role] + late):
            self._note_count(f"{made} pods of {whose} for {reasons} that were missing")
        if len(self.census.with_index(uid, role, index)) > 1:
            self._note_count(f"two pods of {whose} have the index {index}")

    def before_delete(self, namespace: str, plural: str, name: str, asked: str | None) -> None:
        """Somebody asks for the end of the object with that uid."""
        if not asked:
            self.note(f"delete without uid: {plural} {name}")
        entry = self.world.store.find(JOBS if plural == self.plural else plural, namespace, name)
        if entry is None or entry.uid != asked or entry.is_terminating or plural != "pods":
            return
        uid = next((each for each in entry.owners if each in self.wishes), None)
        if uid is None:
            self.note(f"deletes a pod of a stranger: {name}")
            return
        role = entry.labels.get(constants.ROLE_LABEL, "")
        alive = {pod.uid: pod for pod in self.census.live_in(uid, role)}
        known, now_s = self._known(uid), self._now_s()
        is_ending = any(wish.is_ending for wish in known) or self.finished(uid)
        if entry.uid not in alive or is_ending:
            return
        least = min(wish.counts.get(role, 0) for wish in known)
        taken = self._taken[uid, role]
        taken[entry.uid] = now_s
        gone = sum(each in alive and now_s - at_s <= AT_ONCE_S for each, at_s in taken.items())
        # Trainer 0 is somebody others meet at: while it is replaced its place counts, and another one may go instead.
        places = int(role == constants.TRAINER and all(pod.index != "0" for pod in alive.values()))
        is_seen = self.is_view_trusted and now_s - self.world.hit_at > AT_ONCE_S
        if is_seen and len(alive) + places - gone < least - given_up(self._before[uid]) - self._late[uid, role]:
            self._note_count(f"{name} is told to go, although {least} {role}s of {self.names[uid]} are wanted")
        if role == constants.TRAINER and alive[entry.uid].index == "0" and least > 0:
            self._note_count(f"trainer 0 of {self.names[uid]} goes before others")

    def finished(self, uid: str) -> bool:
        """Whether a trainer of this job has come to its end well."""
        return uid in self.world.finishing

    # --- what is written ---------------------------------------------------------------------------------------------
    def before_patch(self, path: str, body: dict[str, Any]) -> None:
        """The spec is the user's, but for one number; whoever writes it says which version it means (RM:I7, I24)."""
        if f"/{self.plural}/" not in path:
            return
        if not (body.get("metadata") or {}).get("resourceVersion"):
            self.note(f"a job is written whatever it is by now: {path}")
        if path.endswith("/status"):
            allowed = {"metadata": {"resourceVersion": ...}, "status": ...}
        else:
            annotations = {constants.SHARING_ANNOTATION: ...}
            allowed = {
                "metadata": {"resourceVersion": ..., "annotations": annotations},
                "spec": {"trainer": {"replicas": ...}},
            }
        if others := _beyond(body, allowed):
            self.note(f"the operator writes what is not its own: {path} {others}")

    def after_create(self, obj: dict[str, Any]) -> None:
        """An operator made a pod or service (RM:I8)."""
        metadata = obj["metadata"]
        owner = next((ref for ref in metadata.get("ownerReferences") or [] if ref.get("controller")), None)
        job = (metadata.get("labels") or {}).get(constants.JOB_LABEL)
        if owner is None or job != owner["name"] or self.names.get(owner["uid"]) != f"{metadata['namespace']}/{job}":
            self.note(f"created without the owner or label of a job: {metadata['name']}")

    def _judge_resize(self, uid: str, before: Mapping[str, Any], obj: Mapping[str, Any]) -> None:
        """The sharing pass has written (I25: bounds, cooldowns, room)."""
        was, record, wish = record_of(before), record_of(obj), self.wishes[uid][-1]
        old, new = was.get("resizes") or [], record.get("resizes") or []
        notes = new[-1:] if new != old else []
        for note in notes:
            whose, reason, after = self.names[uid], note["reason"], note["to"]
            if reason != "Requested" and not wish.low <= after <= wish.high:
                self.note(f"{whose} is given {after}, but has {wish.low}..{wish.high}")
            self._judge_cooldown(uid, obj, note)
            if reason in GROWS and note["to"] > note["from"]:
                self._judge_room(uid, obj, after)
            if reason not in BEGINS:
                is_late = reason == "Requested"  # the rest begins with the request, not with what is written of it
                self._resized_at[uid] = (
                    self._asked_at.get(uid, self._now_s()) if is_late else self._decided_at(uid, note)
                )

    def _decided_at(self, uid: str, note: Mapping[str, Any]) -> float:
        """When the pass decided this, to the second: the rest begins then, however long the write was on its way."""
        passed_s = (self.writer_now() - datetime.fromisoformat(note["at"])).total_seconds()
        if not 0.0 <= passed_s <= LONGEST_WAY_S:
            self.note(f"{self.names[uid]} is resized now, and its record says {passed_s:.1f} s ago: {note}")
        return self._now_s() - max(0.0, passed_s - 1.0)

    def _judge_cooldown(self, uid: str, obj: Mapping[str, Any], note: Mapping[str, Any]) -> None:
        scaling = obj["spec"].get("scaling") or {}
        rested_s = self._now_s() - self._resized_at.get(uid, -1e9)
        is_growth = note["to"] > note["from"]
        if is_growth and note["reason"] in GROWS:
            least_s = scaling.get("growCooldownSeconds", 30)
        elif not is_growth and note["reason"] in TAKEN:
            least_s = scaling.get("shrinkCooldownSeconds", 30)
        else:
            return
        if rested_s < least_s:
            self.note(f"{self.names[uid]} is resized after {rested_s:.1f} s, its cooldown is {least_s} s: {note}")

    def _judge_room(self, uid: str, obj: Mapping[str, Any], after: int) -> None:
        """Growth comes when the room is free, not when somebody has been asked to leave it."""
        if not self.is_view_trusted or self._now_s() - self.world.disturbed_at < UNSEEN_S:
            return
        free = self._free()
        placed = sum(self._is_placed(pod.name, obj) for pod in self.census.live_in(uid, constants.TRAINER))
        missing = max(0, after - given_up(obj) - placed)
        for resource, amount in requests_of(obj["spec"]["trainer"]).items():
            if amount * missing > free[resource]:
                self.note(
                    f"{self.names[uid]} grows to {after}, {missing} of them need {amount * missing} {resource}, "
                    f"but {free[resource]} is free"
                )

    def _is_placed(self, name: str, job: Mapping[str, Any]) -> bool:
        entry = self.world.store.find("pods", job["metadata"]["namespace"], name)
        return entry is not None and bool(node_of(entry.shared()))

    def _free(self) -> Counter[str]:
        """What no pod on a usable node has asked for, pods that are going included."""
        free: Counter[str] = Counter()
        usable = set()
        for key, entry in self.world.store.entries("nodes"):
            node = entry.shared()
            is_ready = any(each["status"] == "True" for each in node["status"]["conditions"] if each["type"] == "Ready")
            if is_ready and not (node.get("spec") or {}).get("unschedulable"):
                usable.add(key.name)
                for resource, text in node["status"]["allocatable"].items():
                    free[resource] += to_millis(text)
        for _, entry in self.world.store.entries("pods"):
            pod = entry.shared()
            if node_of(pod) in usable and (pod.get("status") or {}).get("phase") not in ENDED:
                for container in pod["spec"]["containers"]:
                    free.subtract(requests_of(container))
        return free

    def _judge_status(self, uid: str, before: Mapping[str, Any] | None, obj: Mapping[str, Any]) -> None:
        """A status was committed: it looks neither back nor ahead, and counts no failure that was none (RM:I9, I25)."""
        told, whose = obj.get("status") or {}, self.names[uid]
        seen, seen_before = (each.get("observedGeneration", 0) for each in (told, (before or {}).get("status") or {}))
        if told and seen < seen_before:  # somebody else may wipe it
            self.note(f"observedGeneration of {whose} went from {seen_before} back to {seen}")
        if seen > self._generation_read[uid]:
            self.note(f"observedGeneration of {whose} is {seen}, which nobody has read")
        for role in constants.ROLES:
            failed = (told.get(role) or {}).get("failed", 0)
            if failed > (really := self.world.failed[uid, role]):
                self.note(f"{failed} failed {role}s of {whose} are counted, and {really} failed")


def requests_of(container: Mapping[str, Any]) -> dict[str, int]:
    """What a container, or a role of a job, asks for, in thousandths."""
    amounts = (container.get("resources") or {}).get("requests") or {}
    return {resource: to_millis(str(amount)) for resource, amount in amounts.items()}


def _beyond(body: Mapping[str, Any], allowed: Mapping[str, Any], path: str = "") -> str:
    """The first field that is not among those that may be written."""
    for key, value in body.items():
        if key not in allowed:
            return f"{path}.{key}={json.dumps(value)[:80]}"
        inner = allowed[key]
        if (
            isinstance(inner, Mapping)
            and isinstance(value, Mapping)
            and (found := _beyond(value, inner, f"{path}.{key}"))
        ):
            return found
    return ""


def _size_of(obj: Mapping[str, Any]) -> object:
    return ((obj.get("spec") or {}).get("trainer") or {}).get("replicas")
