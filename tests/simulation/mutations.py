"""Would the simulation notice?

Eighteen deliberate faults in the product, each a patch of one place: no overlay, no uid precondition, no retry, no owner
reference, a new name on retry, no write gate, a term of leadership that trusts old lists, a decision record that nobody
reads, victims chosen beside an autoscaler; and an autoscaler that names before anybody agreed to leave, that writes
without `test`, that does not take a rejected drain back; and, for jobs, growth before room is free, orders for whatever a job
is by now, removals that count as failures, no cooldowns, trainer 0 that goes first, trainers that come before those whose
place they take have been told to go. `pytest --mutation NAME` applies one before the lives are told, and `make mutate`
demands that each turns them red (RM: tests of the tests).
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from raytide.api.actions import Create
from raytide.autoscaler.gcs.client import Gcs
from raytide.autoscaler.model import Drained, Instance
from raytide.autoscaler.scaling import decision_patch, drains, group_targets
from raytide.controller.expectations import Expectations
from raytide.fairshare import patch_plan, snapshot
from raytide.fairshare.eligibility import Cooldowns
from raytide.kube.client import Client
from raytide.raycluster import plan
from raytide.raycluster.controller import RayClusterController
from raytide.raycluster.desired_replicas import Scaling
from raytide.raycluster.manifests import pods, services
from raytide.trainingjob import plan as job_plan
from raytide.trainingjob import plan_context, trainer_indices


def no_overlay(patch: pytest.MonkeyPatch) -> None:
    """The planner sees the cache alone, without our own writes in flight."""
    patch.setattr(Expectations, "overlay", lambda self, key, owner_uid, seen: tuple(seen))


def no_uid_precondition(patch: pytest.MonkeyPatch) -> None:
    """A delete means a name, whoever bears it by now."""
    write = Client._write

    async def patched(self: Client, method: str, path: str, *, body: Any, **rest: Any) -> Any:
        if method == "DELETE":
            body = {key: value for key, value in body.items() if key != "preconditions"}
        return await write(self, method, path, body=body, **rest)

    patch.setattr(Client, "_write", patched)


def no_retry(patch: pytest.MonkeyPatch) -> None:
    """A write whose outcome is unknown is never repeated."""
    patch.setattr(Expectations, "due", lambda self, key, owner_uid: ())
    patch.setattr(Expectations, "requeue_after_s", lambda self, key: None)  # else it would look again without a pause


def no_owner_reference(patch: pytest.MonkeyPatch) -> None:
    """Children belong to nobody."""
    for module in (pods, services):
        patch.setattr(module, "controller_reference", lambda *_: {"kind": "RayCluster", "name": "", "uid": "nobody"})


def new_name_on_retry(patch: pytest.MonkeyPatch) -> None:
    """A repeated create is given another name."""
    due = Expectations.due
    numbers = itertools.count()

    def renamed(self: Expectations[Any], key: Any, owner_uid: str) -> tuple[Any, ...]:
        return tuple(rename(action) for action in due(self, key, owner_uid))

    def rename(action: Any) -> Any:
        if not isinstance(action, Create):
            return action
        metadata = {**action.manifest["metadata"], "name": f"{action.name}{next(numbers)}"}
        return dataclasses.replace(action, manifest={**action.manifest, "metadata": metadata})

    patch.setattr(Expectations, "due", renamed)


def no_write_gate(patch: pytest.MonkeyPatch) -> None:
    """Whoever has led once goes on writing, whether or not the lease is still safely held."""
    patch.setattr(Client, "_granted_s", lambda self: self._timeout_s)


def no_relist_in_term(patch: pytest.MonkeyPatch) -> None:
    """A new leader begins with whatever its informers happen to show."""

    async def synced(self: RayClusterController) -> None:
        for stream in self.streams:
            await stream.wait_synced()

    patch.setattr(RayClusterController, "_relist", synced)


def no_decision_record(patch: pytest.MonkeyPatch) -> None:
    """The spec rules, whatever the autoscaler wrote beside it."""
    patch.setattr(plan, "scaling_of", lambda cluster, *_: Scaling(cluster.is_autoscaled))


def unnamed_victims(patch: pytest.MonkeyPatch) -> None:
    """Too many workers are deleted without a name, under autoscaling too."""
    patch.setattr(Scaling, "may_choose_victims", lambda *_, **__: True)


def delete_before_drain(patch: pytest.MonkeyPatch) -> None:
    """Whoever is to leave is named at once, whether or not it agreed."""
    patch.setattr(drains, "_may_be_named", lambda *_: True)
    named = group_targets._host_disposition

    def name_at_once(host: Instance, question: group_targets.GroupInputs) -> group_targets.Disposition:
        fate = named(host, question)
        return group_targets.Disposition.NAMED if fate is group_targets.Disposition.LEAVES else fate

    patch.setattr(group_targets, "_host_disposition", name_at_once)


def no_json_patch_tests(patch: pytest.MonkeyPatch) -> None:
    """The autoscaler's patches change whatever stands at that place by now."""
    build = decision_patch.build_patch

    def without_tests(*arguments: Any) -> tuple[Any, ...]:
        return tuple(operation for operation in build(*arguments) if operation["op"] != "test")

    patch.setattr(decision_patch, "build_patch", without_tests)


def rejected_drain_accepted(patch: pytest.MonkeyPatch) -> None:
    """A node that rejected to leave counts as one that agreed."""

    async def drain(self: Gcs, *arguments: Any, **more: Any) -> Drained:
        await drain_as_is(self, *arguments, **more)
        return Drained(is_accepted=True)

    drain_as_is = Gcs.drain
    patch.setattr(Gcs, "drain", drain)


def growth_before_release(patch: pytest.MonkeyPatch) -> None:
    """Room is given as soon as somebody has been asked to leave it."""
    patch.setattr(patch_plan, "_released", lambda resizes: resizes)


def patch_without_version(patch: pytest.MonkeyPatch) -> None:
    """Sizes are written on whatever the job is by now."""
    patch_of = patch_plan.JobPatch.patch

    def patched(self: patch_plan.JobPatch, version: str) -> dict[str, Any]:
        body = dict(patch_of(self, version))
        return {**body, "metadata": {"annotations": body["metadata"]["annotations"]}}

    patch.setattr(patch_plan.JobPatch, "patch", patched)


def deletions_as_failures(patch: pytest.MonkeyPatch) -> None:
    """Who was told to go counts like one that failed."""
    count = plan_context.count_terminations

    def count_all(job: Any, observed: Any, record: Any = None) -> Any:
        pods = tuple(msgspec.structs.replace(pod, deletion_timestamp="") for pod in observed.pods)
        return count(job, dataclasses.replace(observed, pods=pods), record)

    patch.setattr(plan_context, "count_terminations", count_all)


def no_cooldown(patch: pytest.MonkeyPatch) -> None:
    """Jobs never rest between resizes."""
    patch.setattr(snapshot, "cooldowns_of", lambda *_: Cooldowns())


def lowest_index_first(patch: pytest.MonkeyPatch) -> None:
    """A job that shrinks loses its lowest indices."""
    patch.setattr(
        trainer_indices, "_first", lambda alive, number, _named: set(sorted(alive, reverse=True)[: max(0, number)])
    )


def create_before_delete(patch: pytest.MonkeyPatch) -> None:
    """Trainers come together with the DELETE of those whose place they take."""
    start = job_plan._start
    patch.setattr(job_plan, "_start", lambda now, role, indices, **_: start(now, role, indices))


MUTATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "no-overlay": no_overlay,
    "no-uid-precondition": no_uid_precondition,
    "no-retry": no_retry,
    "no-owner-reference": no_owner_reference,
    "new-name-on-retry": new_name_on_retry,
    "no-write-gate": no_write_gate,
    "no-relist-in-term": no_relist_in_term,
    "no-decision-record": no_decision_record,
    "unnamed-victims": unnamed_victims,
    "delete-before-drain": delete_before_drain,
    "no-json-patch-tests": no_json_patch_tests,
    "rejected-drain-accepted": rejected_drain_accepted,
    "growth-before-release": growth_before_release,
    "patch-without-version": patch_without_version,
    "deletions-as-failures": deletions_as_failures,
    "no-cooldown": no_cooldown,
    "lowest-index-first": lowest_index_first,
    "create-before-delete": create_before_delete,
}
