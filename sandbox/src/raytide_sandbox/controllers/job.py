"""Job controller: batch/v1 Jobs as pods.

Takes changes of Jobs and their pods. Starts pods until as many have succeeded as the Job asks for, counts failures against
`backoffLimit`, ends Jobs at `activeDeadlineSeconds` and deletes ended ones after `ttlSecondsAfterFinished`. Not built:
indexed Jobs, `podFailurePolicy`, `successPolicy`, back-off between failures. One of the sandbox's controllers; its cost follows
the number of changed Jobs.
"""

from collections import Counter
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any, Final

from raytide_sandbox.apiserver import defaulting
from raytide_sandbox.apiserver.store import ObjectKey, Store
from raytide_sandbox.controllers.base import Json, Noted, attempt, record_event, set_condition
from raytide_sandbox.rfc3339 import format_time, parse_time

JOBS: Final = "jobs.batch"
COMPONENT: Final = "job-controller"
RETRY: Final = timedelta(seconds=10)
"""After a pod that the API rejected, such as one of a service account that does not exist."""
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_ENDED: Final = ("Succeeded", "Failed")


class JobController:
    """Runs the pods of Jobs, and writes their status."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due: set[ObjectKey] = set()
        self._wakeups: dict[ObjectKey, datetime] = {}
        self._created = 0
        self._lost: Counter[str] = Counter()
        """By the uid of the Job, its pods that were deleted before they succeeded: each has failed."""

    def on_change(self, noted: Noted) -> None:
        """Queue a changed Job, and the Job of a changed pod."""
        if noted.key.resource == JOBS:
            self._due.add(noted.key)
        elif noted.key.resource == "pods":
            for uid in noted.change.entry.owners:
                owner = self._store.locate(uid)
                if owner is not None and owner.resource == JOBS:
                    self._due.add(owner)
                    self._lost[uid] += noted.is_gone and noted.pod.status.phase != "Succeeded"
        if noted.key.resource == JOBS and noted.is_gone:
            self._lost.pop(noted.change.entry.uid, None)

    def act(self, now: datetime) -> datetime | None:
        """Sync the queued Jobs and those whose time has come; returns when the next one's comes."""
        self._due |= {key for key, at in self._wakeups.items() if at <= now}
        due, self._due = sorted(self._due), set()
        for key in due:
            self._wakeups.pop(key, None)
            entry = self._store.find(*key)
            if entry is not None and not entry.is_terminating:
                at = self._sync(key, entry.obj(), now)
                if at is not None:
                    self._wakeups[key] = at
        return min(self._wakeups.values(), default=None)

    def _sync(self, key: ObjectKey, job: Json, now: datetime) -> datetime | None:
        """Take one Job further; returns when time alone changes it."""
        spec, status = job["spec"], job.setdefault("status", {})
        if finished := _finished_at(status):
            return self._expire(key, spec, finished, now)
        if spec.get("suspend"):
            return None
        before = repr(status)
        status.setdefault("startTime", format_time(now))
        pods = [pod for name in sorted(self._store.dependents(job["metadata"]["uid"])) if (pod := self._pod(name))]
        active = [pod for pod in pods if _phase(pod) not in _ENDED]
        succeeded, failed = (sum(_phase(pod) == phase for pod in pods) for phase in _ENDED)
        failed += self._lost[job["metadata"]["uid"]]
        ends_at = _after(status["startTime"], spec.get("activeDeadlineSeconds"))
        wakeup, end = ends_at, _how_it_ends(spec, succeeded, failed, is_late=ends_at is not None and ends_at <= now)
        if end is not None:
            set_condition(status, end, now)
            if end["type"] == "Complete":
                status["completionTime"] = format_time(now)
            for pod in active:
                attempt(lambda at=pod["metadata"]: self._store.delete("pods", at["namespace"], at["name"]))  # type: ignore[misc]
            active = []
        for _ in range(0 if end else min(spec.get("parallelism", 1), _completions(spec) - succeeded) - len(active)):
            pod = self._start(job, now)
            if pod is None:
                wakeup = min(filter(None, (ends_at, now + RETRY)))
                break
            active.append(pod)
        counts = {"active": len(active), "succeeded": succeeded, "failed": failed}
        job["status"] = {name: value for name, value in status.items() if name not in counts}
        job["status"] |= {name: number for name, number in counts.items() if number}
        if repr(job["status"]) != before:
            attempt(lambda: self._store.update(JOBS, job, subresource="status"))
        return wakeup

    def _expire(self, key: ObjectKey, spec: Json, finished: datetime, now: datetime) -> datetime | None:
        ttl_s = spec.get("ttlSecondsAfterFinished")
        if ttl_s is None:
            return None
        at = finished + timedelta(seconds=ttl_s)
        if at > now:
            return at
        attempt(lambda: self._store.delete(*key, propagation="Background"))
        return None

    def _start(self, job: Json, now: datetime) -> Json | None:
        """A new pod of the Job; None when the API rejects it."""
        metadata, template = job["metadata"], job["spec"]["template"]
        self._created += 1
        suffix = _suffix(self._store.version + self._created)
        given = template.get("metadata") or {}
        labels = {
            **(given.get("labels") or {}),
            "batch.kubernetes.io/job-name": metadata["name"],
            "batch.kubernetes.io/controller-uid": metadata["uid"],
            "job-name": metadata["name"],
            "controller-uid": metadata["uid"],
        }
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}
        pod: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{metadata['name'][:57]}-{suffix}",
                "namespace": metadata["namespace"],
                "labels": labels,
                "annotations": dict(given.get("annotations") or {}),
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": deepcopy(template["spec"]),
        }
        name = pod["spec"].get("serviceAccountName") or "default"
        account = self._store.find("serviceaccounts", metadata["namespace"], name)
        if account is None and name != "default":
            return None
        defaulting.admit_pod(pod, suffix=suffix, account=account.obj() if account else None)
        defaulting.complete(self._store.resource("pods"), pod)
        if not attempt(lambda: self._store.create("pods", pod)):
            return None
        text = f"Created pod: {pod['metadata']['name']}"
        record_event(
            self._store, job, kind="Normal", reason="SuccessfulCreate", message=text, now=now, component=COMPONENT
        )
        return pod

    def _pod(self, key: ObjectKey) -> Json | None:
        entry = self._store.find(*key) if key.resource == "pods" else None
        return entry.shared() if entry is not None else None


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase") or "")


def _finished_at(status: Json) -> datetime | None:
    """When the Job ended; None while it runs."""
    ended = [each for each in status.get("conditions") or () if each["type"] in ("Complete", "Failed")]
    return parse_time(ended[0]["lastTransitionTime"]) if ended else None


def _completions(spec: Json) -> int:
    return int(spec.get("completions") or 1)


def _how_it_ends(spec: Json, succeeded: int, failed: int, *, is_late: bool) -> Json | None:
    """The condition of a Job that is over; None while it goes on."""
    if succeeded >= _completions(spec):
        kind, reason, message = "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
    elif is_late:
        kind, reason, message = "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    elif failed > spec.get("backoffLimit", 6):
        kind, reason, message = "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    else:
        return None
    return {"type": kind, "status": "True", "reason": reason, "message": message}


def _after(start: str, seconds: Any) -> datetime | None:
    since = parse_time(start)
    return since + timedelta(seconds=seconds) if since is not None and isinstance(seconds, int) else None


def _suffix(number: int) -> str:
    letters = ""
    for _ in range(5):
        number, letter = divmod(number, len(_ALPHABET))
        letters += _ALPHABET[letter]
    return letters
