"""One TrainingJob and its pods in memory: plans are carried out, statuses written, and the test moves the clock.

Plays the API server, the kubelet and the shell at once, as plainly as possible: creates are there at once, deletes leave
a terminating pod until `let_go`, the test starts pods. `crash_before_status` leaves out the write of one pass.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from raytide.api import trainingjob_constants as constants
from raytide.api.actions import Action, Create, Delete, EventSpec, Outcome, Patch, PendingRetry, Result
from raytide.api.conditions import find_condition, timestamp
from raytide.api.config import JobConfig
from raytide.api.meta import CONFIG_MAPS, PODS, SERVICES
from raytide.api.pod import ContainerView, PodCondition
from raytide.api.sharing_record import RequestNote, ResizeNote, SharingRecord, WaitingNote, encode_record
from raytide.api.status_patch import status_patch
from raytide.api.trainingjob import TrainingJob
from raytide.api.trainingjob_object import JobObject, digest, job_object_from_manifest
from raytide.api.trainingjob_pod import JobPod, job_pod_from_manifest
from raytide.trainingjob.observed import Observed, observe
from raytide.trainingjob.plan import plan
from raytide.trainingjob.plan_types import TrainingJobPlan
from raytide.trainingjob.status import requeue_after_s, status
from support.training_builders import JOB_UID, trainingjob

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
READY = PodCondition("True")
MOST_PASSES = 30


class JobWorld:
    """A job, its children and its history."""

    def __init__(self, **spec: Any) -> None:
        trainer = {"entrypoint": "python train.py", **spec.pop("trainer", {})}
        self.obj = trainingjob(trainer=trainer, **spec)
        self.now = BEGIN
        self.pods: dict[str, JobPod] = {}
        self.services: dict[str, JobObject] = {}
        self.config_maps: dict[str, JobObject] = {}
        self.files: dict[str, str] = {}
        """The membership's `data`."""
        self.pending_retries: tuple[PendingRetry, ...] = ()
        self.unready_nodes: frozenset[str] = frozenset()
        self.known_for_s = float("inf")
        self.is_deleted = False
        self.events: list[tuple[str, str]] = []
        self.config = JobConfig()
        self.record: SharingRecord | None = None
        self._made = 0

    # --- look --------------------------------------------------------------------------------------------------------

    @property
    def job(self) -> TrainingJob:
        return TrainingJob.parse(self.obj)

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.obj.get("status") or {}
        return found

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    def condition(self, kind: str) -> dict[str, Any]:
        return dict(find_condition(self.status.get("conditions") or (), kind) or {})

    def names_of(self, role: str) -> list[str]:
        """Pods of a role that are neither ended nor terminating, without the job's name."""
        alive = [p for p in self.pods.values() if p.role == role and not p.is_terminating and not p.is_finished]
        return sorted(pod.name.removeprefix("demo-") for pod in alive)

    @property
    def trainers(self) -> list[int]:
        """Indices of trainers that are neither ended nor terminating."""
        alive = [p for p in self.pods.values() if p.role == constants.TRAINER and not p.is_terminating]
        return sorted(pod.index for pod in alive if not pod.is_finished and pod.index is not None)

    @property
    def observed(self) -> Observed:
        return observe(
            JOB_UID,
            pods=self.pods.values(),
            services=self.services.values(),
            config_maps=self.config_maps.values(),
            unready_nodes=self.unready_nodes,
            pending_retries=self.pending_retries,
            seen_at=self.now,
            known_for_s=self.known_for_s,
        )

    def messages_of(self, reason: str) -> list[str]:
        """Notes of the events with that reason."""
        return [note for recorded, note in self.events if recorded == reason]

    # --- passes ------------------------------------------------------------------------------------------------------

    def plan(self) -> TrainingJobPlan:
        """What would be done now."""
        return plan(self.job, self.observed, self.config)

    def reconcile(self, *, crash_before_status: bool = False) -> TrainingJobPlan:
        """One pass."""
        job, todo = self.job, self.plan()
        if not todo.is_reported:
            return todo
        outcomes = [self._carry_out(action) for action in todo.actions]
        if crash_before_status:
            return todo
        computed = status(job, self.observed, todo, outcomes, self.now)
        patch = status_patch(job, computed)
        if patch:
            self.obj["status"] = merged(self.status, patch["status"])
        self._record_events(todo.events)
        again = requeue_after_s(job, self.observed, computed, self.now)
        return replace(todo, requeue_after_s=_sooner(todo.requeue_after_s, again))

    def settle(self) -> "JobWorld":
        """Pass after pass until nothing changes any more; the clock stands still."""
        for _ in range(MOST_PASSES):
            before = dict(self.status)
            if not self.reconcile().actions and self.status == before:
                return self
        raise AssertionError("the passes do not come to an end")

    def settle_or_delete(self) -> None:
        """The same for a job that may be deleted by its own plan."""
        for _ in range(MOST_PASSES):
            if self.is_deleted or not (self.reconcile().actions or self.plan().actions):
                return

    def run(self, *only: str) -> "JobWorld":
        """Pods (all, or these) that have not ended start and are ready; repeated until all pods that may be created exist."""
        for _ in range(MOST_PASSES):
            self.settle()
            waiting = [p for p in self.pods.values() if not p.is_running and not p.is_finished and not p.is_terminating]
            chosen = [pod for pod in waiting if not only or pod.name.removeprefix("demo-") in only]
            if not chosen:
                return self
            for pod in chosen:
                self._change(
                    pod.name,
                    phase="Running",
                    ready=READY,
                    scheduled=READY,
                    containers=(ContainerView(pod.role, "running"),),
                    node_name="node-0",
                    started_at=timestamp(self.now),
                )
        raise AssertionError("pods come without end")

    def _carry_out(self, action: Action) -> Outcome:
        match action:
            case Create(resource=resource, manifest=manifest):
                self._create(resource, manifest)
            case Delete(resource=resource, name=name, uid=uid) if resource == PODS:
                assert self.pods[name].uid == uid
                self._change(name, deletion_timestamp=timestamp(self.now))
            case Delete(uid=uid):
                assert uid == JOB_UID
                self.is_deleted = True
            case Patch(resource=resource, name=name, uid=uid, body=body):
                revision = body["metadata"]["annotations"][constants.MEMBERSHIP_ANNOTATION]
                if resource == PODS:
                    assert self.pods[name].uid == uid
                    self._change(name, membership_revision=revision)
                else:
                    self.write_files(merged(self.files, body["data"]), revision)
        return Outcome(action, Result.DONE)

    def _create(self, resource: Any, manifest: dict[str, Any]) -> None:
        self._made += 1
        stamped = {"uid": f"uid-{self._made}", "creationTimestamp": timestamp(self.now)}
        made = {**manifest, "metadata": {**manifest["metadata"], **stamped}}
        name = made["metadata"]["name"]
        shelf: dict[str, Any] = {PODS: self.pods, SERVICES: self.services, CONFIG_MAPS: self.config_maps}[resource]
        assert name not in shelf, f"{name} is there already"
        is_pod = resource == PODS
        view: Any = job_pod_from_manifest(made) if is_pod else job_object_from_manifest(made)
        shelf[name] = msgspec.structs.replace(view, phase="Pending") if is_pod else view
        if resource == CONFIG_MAPS:
            self.files = manifest["data"]

    def write_files(self, files: dict[str, str], revision: str = "") -> None:
        """Another client replaces the membership's `data`."""
        (name, found), self.files = next(iter(self.config_maps.items())), files
        digests = {file: digest(text) for file, text in files.items()}
        self.config_maps[name] = msgspec.structs.replace(found, files=digests, membership_revision=revision)

    def _record_events(self, remarks: Sequence[EventSpec]) -> None:
        self.events += [(remark.reason, remark.message) for remark in remarks]

    # --- what happens to it --------------------------------------------------------------------------------------------

    def _change(self, name: str, **fields: Any) -> None:
        self.pods[name] = msgspec.structs.replace(self.pods[name], **fields)

    def pod(self, short: str, **fields: Any) -> None:
        """Change what a pod looks like."""
        self._change(f"demo-{short}", **fields)

    def end(self, short: str, code: int = 0, **fields: Any) -> None:
        """A pod's container ends."""
        pod = self.pods[f"demo-{short}"]
        word = "Completed" if code == 0 else "Error"
        container = ContainerView(pod.role, "terminated", word, exit_code=code, finished_at=timestamp(self.now))
        phase = "Failed" if code else "Succeeded"
        self.pod(short, **{"phase": phase, "containers": (container,), "ready": PodCondition("False"), **fields})

    def let_go(self) -> None:
        """Terminating pods are gone."""
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.is_terminating}

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def order(
        self,
        replicas: int,
        reason: str = "Growing",
        message: str = "",
        for_job: str = "",
        *,
        victims: Sequence[str] = (),
        placements: Mapping[str, int] | None = None,
        core_nodes: Mapping[str, Mapping[str, int]] | None = None,
    ) -> None:
        """The sharing pass writes a size, as it does: spec and record in one patch."""
        before = self.obj["spec"]["trainer"].get("replicas") or 0
        record = self.record or SharingRecord(JOB_UID, replicas)
        note = ResizeNote(self.now, before, replicas, reason, message, for_job)
        names = tuple(f"demo-{short}" for short in victims)
        resizes = (*record.resizes, note)
        record = replace(record, replicas=replicas, resizes=resizes, victims=names)
        self._write(replace(record, placements=placements or {}, core_nodes=core_nodes or {}))
        self.resize(replicas)

    def admit(self, replicas: int = 2) -> None:
        """The sharing pass lets a gang begin."""
        record = self.record or SharingRecord(JOB_UID, replicas)
        self.record = replace(record, is_admitted=True, admitted_at=self.now, waiting=None)
        self.order(replicas, "Admitted", f"Admitted with {replicas}: its minimum of {replicas} fits")

    def say_waiting(
        self, reason: str, message: str = "needs more", *, is_below_minimum: bool = True, **parameters: str
    ) -> None:
        """The sharing pass records why there is no capacity."""
        record = self.record or SharingRecord(JOB_UID, 0)
        note = WaitingNote(reason, message, is_below_minimum, parameters=parameters)
        self._write(replace(record, waiting=note))

    def say_requested(self, replicas: int, times: int = 1, writer: str = "keda") -> None:
        """The sharing pass notes a size that another client wrote and that is not the job's."""
        assert self.record is not None
        self._write(replace(self.record, request=RequestNote(self.now, replicas, times, writer)))

    def resize(self, replicas: int) -> None:
        """A client writes `spec.trainer.replicas`."""
        self.edit(trainer={**self.obj["spec"]["trainer"], "replicas": replicas})

    def edit(self, **spec: Any) -> None:
        """A client edits the spec."""
        self.obj["spec"] = {**self.obj["spec"], **spec}
        self.obj["metadata"]["generation"] += 1

    def _write(self, record: SharingRecord) -> None:
        self.record = record
        self.obj["metadata"]["annotations"] = {constants.SHARING_ANNOTATION: encode_record(record)}


def merged(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """RFC 7386."""
    new = dict(old)
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        elif isinstance(value, dict):
            new[key] = merged(new.get(key) if isinstance(new.get(key), dict) else {}, value)
        else:
            new[key] = value
    return new


def _sooner(one: float | None, other: float | None) -> float | None:
    return min((wait_s for wait_s in (one, other) if wait_s is not None), default=None)
