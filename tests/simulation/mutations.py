"""Deliberate mutations of the product, each of which must make the simulation, or the tests of the bounds on inputs, fail.

Patches of one place each, for example: no overlay of expectations, deletes without a uid precondition, creates
without an owner reference, no write gate, an ignored decision record, growth before capacity is free, views of any size. `pytest --mutation
NAME` applies one; `make mutate` requires that each is detected (RM: tests of the tests).
"""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from raytide.api import pod_requirements
from raytide.api.actions import Create
from raytide.autoscaler.gcs.client import Gcs
from raytide.autoscaler.model import Drained, Instance
from raytide.autoscaler.scaling import decision_patch, drains, group_targets
from raytide.controller.expectations import Expectations
from raytide.fairshare import patch_plan, snapshot
from raytide.fairshare.algorithm import shape_limits, state
from raytide.fairshare.eligibility import Cooldowns
from raytide.kube.client import Client
from raytide.raycluster import plan
from raytide.raycluster.controller import RayClusterController
from raytide.raycluster.desired_replicas import ScalingState
from raytide.raycluster.manifests import pods, services
from raytide.trainingjob import plan as job_plan
from raytide.trainingjob import plan_context, trainer_indices


def no_overlay(patch: pytest.MonkeyPatch) -> None:
    """The planner uses the cache only, without writes in flight."""
    patch.setattr(Expectations, "overlay", lambda self, key, owner_uid, seen: tuple(seen))


def no_uid_precondition(patch: pytest.MonkeyPatch) -> None:
    """A delete has no uid precondition."""
    write = Client._write

    async def patched(self: Client, method: str, path: str, *, body: Any, **rest: Any) -> Any:
        if method == "DELETE":
            body = {key: value for key, value in body.items() if key != "preconditions"}
        return await write(self, method, path, body=body, **rest)

    patch.setattr(Client, "_write", patched)


def no_retry(patch: pytest.MonkeyPatch) -> None:
    """A write whose outcome is unknown is never repeated."""
    patch.setattr(Expectations, "due", lambda self, key, owner_uid: ())
    patch.setattr(Expectations, "requeue_after_s", lambda self, key: None)  # else it would requeue without a pause


def no_owner_reference(patch: pytest.MonkeyPatch) -> None:
    """Owned objects have no valid owner."""
    for module in (pods, services):
        patch.setattr(
            module, "controller_reference", lambda *_: {"kind": "RayCluster", "name": "", "uid": "no-such-uid"}
        )


def new_name_on_retry(patch: pytest.MonkeyPatch) -> None:
    """A repeated create has another name."""
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
    """A former leader continues to write without a valid lease."""
    patch.setattr(Client, "_granted_s", lambda self: self._timeout_s)


def no_relist_in_term(patch: pytest.MonkeyPatch) -> None:
    """A new leader starts with the current caches of its informers."""

    async def synced(self: RayClusterController) -> None:
        for stream in self.streams:
            await stream.wait_synced()

    patch.setattr(RayClusterController, "_relist", synced)


def no_decision_record(patch: pytest.MonkeyPatch) -> None:
    """The spec applies, and the decision record is ignored."""
    patch.setattr(plan, "scaling_of", lambda cluster, *_: ScalingState(cluster.is_autoscaled))


def unnamed_victims(patch: pytest.MonkeyPatch) -> None:
    """Surplus workers are deleted without being named, under autoscaling too."""
    patch.setattr(ScalingState, "may_choose_victims", lambda *_, **__: True)


def delete_before_drain(patch: pytest.MonkeyPatch) -> None:
    """A worker is added to workersToDelete before it accepted the drain."""
    patch.setattr(drains, "_may_be_named", lambda *_: True)
    named = group_targets._host_disposition

    def name_at_once(host: Instance, question: group_targets.GroupInputs) -> group_targets.Disposition:
        fate = named(host, question)
        return group_targets.Disposition.TO_DELETE if fate is group_targets.Disposition.TO_DRAIN else fate

    patch.setattr(group_targets, "_host_disposition", name_at_once)


def no_json_patch_tests(patch: pytest.MonkeyPatch) -> None:
    """The autoscaler's patches have no `test` operations."""
    build = decision_patch.build_patch

    def without_tests(*arguments: Any) -> tuple[Any, ...]:
        return tuple(operation for operation in build(*arguments) if operation["op"] != "test")

    patch.setattr(decision_patch, "build_patch", without_tests)


def rejected_drain_accepted(patch: pytest.MonkeyPatch) -> None:
    """A node that rejected the drain counts as one that accepted it."""

    async def drain(self: Gcs, *arguments: Any, **more: Any) -> Drained:
        await drain_as_is(self, *arguments, **more)
        return Drained(is_accepted=True)

    drain_as_is = Gcs.drain
    patch.setattr(Gcs, "drain", drain)


def growth_before_release(patch: pytest.MonkeyPatch) -> None:
    """Capacity is assigned as soon as a delete was requested."""
    patch.setattr(patch_plan, "_released", lambda resizes: resizes)


def patch_without_version(patch: pytest.MonkeyPatch) -> None:
    """Sizes are patched without a resourceVersion."""
    patch_of = patch_plan.JobPatch.patch

    def patched(self: patch_plan.JobPatch, version: str) -> dict[str, Any]:
        body = dict(patch_of(self, version))
        return {**body, "metadata": {"annotations": body["metadata"]["annotations"]}}

    patch.setattr(patch_plan.JobPatch, "patch", patched)


def deletions_as_failures(patch: pytest.MonkeyPatch) -> None:
    """Pods that were deleted count as failures."""
    count = plan_context.count_terminations

    def count_all(job: Any, observed: Any, record: Any = None) -> Any:
        pods = tuple(msgspec.structs.replace(pod, deletion_timestamp="") for pod in observed.pods)
        return count(job, dataclasses.replace(observed, pods=pods), record)

    patch.setattr(plan_context, "count_terminations", count_all)


def no_cooldown(patch: pytest.MonkeyPatch) -> None:
    """Jobs have no cooldown between resizes."""
    patch.setattr(snapshot, "cooldowns_of", lambda *_: Cooldowns())


def lowest_index_first(patch: pytest.MonkeyPatch) -> None:
    """A job that is scaled down loses its lowest indices."""
    patch.setattr(
        trainer_indices, "_first", lambda alive, number, _named: set(sorted(alive, reverse=True)[: max(0, number)])
    )


def create_before_delete(patch: pytest.MonkeyPatch) -> None:
    """Trainers are created at the same time as the DELETE of those that they replace."""
    start = job_plan._start
    patch.setattr(job_plan, "_start", lambda now, role, indices, **_: start(now, role, indices))


def unbounded_views(patch: pytest.MonkeyPatch) -> None:
    """Views keep all constraints of a pod: the bytes of SECURITY.md."""
    for bound in ("MAX_CONSTRAINTS", "MAX_VALUES", "MAX_CONSTRAINT_BYTES"):
        patch.setattr(pod_requirements, bound, 10**9)


def unbounded_pass(patch: pytest.MonkeyPatch) -> None:
    """A sharing pass considers all shapes: the time of SECURITY.md."""
    within_limits = shape_limits.within_limits

    def considering_all(pool: Any) -> Any:
        with pytest.MonkeyPatch.context() as inner:
            for bound in ("MAX_SHAPES", "MAX_CHECKS"):
                inner.setattr(shape_limits, bound, 10**9)
            return within_limits(pool)

    patch.setattr(state, "within_limits", considering_all)


def too_large_matches(patch: pytest.MonkeyPatch) -> None:
    """A pod above the bounds matches every node: what SECURITY.md says happens above them."""
    patch.setattr(pod_requirements, "TOO_LARGE", pod_requirements.ANYWHERE)


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
    "unbounded-views": unbounded_views,
    "unbounded-pass": unbounded_pass,
    "too-large-matches": too_large_matches,
}
