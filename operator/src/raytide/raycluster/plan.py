"""Plan of a RayCluster: the writes that bring it to the state in its spec.

Takes the cluster, its observed state, the settings and a name generator, and returns the writes in order: services,
RBAC objects, head pod, worker groups. It is a pure function, and its result is empty once everything exists. A cluster
that is invalid gets no writes except to finish a suspension, one of another controller gets none; their pods keep
running. Deletion is in deletion.py. Called by the reconciler; rules RC §2.2, RC:HP-1..6, RC §4, RM:I2, RM:I5, D5.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Final

from raytide.api import constants
from raytide.api.actions import MAX_WRITES, Action, Create, Delete, EventSpec
from raytide.api.config import ClusterConfig
from raytide.api.meta import PERSISTENT_VOLUME_CLAIMS
from raytide.api.plan import run_steps
from raytide.api.pod import PodView
from raytide.api.raycluster import RayCluster, WorkerGroupSpec
from raytide.api.violations import Violation
from raytide.raycluster import messages
from raytide.raycluster.deletion import finalizer_patch, is_held, left_in_redis, wants_finalizer
from raytide.raycluster.desired_replicas import LATER, ScalingState, scaling_of, within_exit_grace
from raytide.raycluster.endings import head_loss, how_it_ended, kept_failures
from raytide.raycluster.head_service import head_service_events
from raytide.raycluster.manifests.gcs_storage import (
    claim_lookups,
    claim_name,
    differences,
    owner_patch,
    users_claim,
)
from raytide.raycluster.manifests.lookup import Lookup
from raytide.raycluster.manifests.names import Namer, replica_name, unused
from raytide.raycluster.manifests.rbac import lookups
from raytide.raycluster.manifests.token_auth import secret_lookups
from raytide.raycluster.observed import Observed
from raytide.raycluster.owned_objects import OWNED_OBJECTS, DrawToken, OwnedObject, missing_named_account
from raytide.raycluster.plan_multihost_group import plan_replicas
from raytide.raycluster.plan_types import NOTHING, RayClusterPlan
from raytide.raycluster.plan_worker_group import NEWEST, GroupChanges, GroupInputs, Victim, plan_group, removed_groups
from raytide.raycluster.pod_actions import (
    create_head,
    create_hosts,
    create_workers,
    delete_head,
    delete_pod,
    delete_worker,
    failed_starts_value,
)
from raytide.raycluster.protection import missing_protection
from raytide.raycluster.spec_queries import has_rocksdb_fault_tolerance, is_head_restart_disabled, is_managed_by_us
from raytide.raycluster.spec_warnings import warning_events
from raytide.raycluster.suspension import Suspension, suspension_of
from raytide.raycluster.validation import violations

LOOKUP_RETRY_S: Final = 5.0
"""After which what a user has to create is looked up again."""
FINALIZER_INTERVAL_S: Final = 30.0


def _no_token() -> str:
    raise ValueError("only the reconciler draws tokens")


@dataclass(frozen=True, slots=True)
class PlanContext:
    """The input of every step."""

    cluster: RayCluster
    observed: Observed
    config: ClusterConfig
    namer: Namer
    scaling: ScalingState
    draw_token: DrawToken = field(default=_no_token)


def plan(
    cluster: RayCluster,
    observed: Observed,
    config: ClusterConfig,
    namer: Namer,
    draw_token: DrawToken = _no_token,
) -> RayClusterPlan:
    """Run the steps in order; each may add writes, and may be the last."""
    scaling = scaling_of(cluster, observed, config.autoscaler.mode)
    ctx = PlanContext(cluster, observed, config, unused(namer, observed.names_in_use), scaling, draw_token)
    return run_steps(STEPS, ctx)


def plan_unreadable(cluster: RayCluster, observed: Observed, found: Sequence[Violation]) -> RayClusterPlan:
    """Plan of a cluster whose spec cannot be parsed: a stored suspension continues, and the violations are reported."""
    ctx = PlanContext(cluster, observed, ClusterConfig(), str, ScalingState())
    return end_suspended(ctx) + _violations_plan(found)


# --- steps -----------------------------------------------------------------------------------------------------------


def leave_to_other_controller(ctx: PlanContext) -> RayClusterPlan:
    """Leave alone a cluster that another controller manages (RC:REC-2)."""
    is_ours = is_managed_by_us(ctx.cluster.spec.managed_by)
    return NOTHING if is_ours else RayClusterPlan(is_reported=False, is_last=True)


def end_suspended(ctx: PlanContext) -> RayClusterPlan:
    """Delete all pods once the suspension is stored in the status, before any step that can block the rest of the plan (RC §5.4).

    An invalid or changed spec does not stop it: the user or queue controller waits for the capacity.
    """
    phase = suspension_of(ctx.cluster)
    if phase is Suspension.NONE:
        return NOTHING
    alive = [Victim(pod, messages.CLUSTER_SUSPENDED) for pod in ctx.observed.suspendable if not pod.is_terminating]
    if not phase.ends_pods:  # before pods may be deleted, creates of unknown outcome are only not repeated
        alive = [victim for victim in alive if not victim.pod.uid]
    return replace(_end(alive, delete_pod), is_status_gated=True)


def check_spec(ctx: PlanContext) -> RayClusterPlan:
    """Report violations and warnings of the spec; with a violation nothing else is done, and running pods are kept (RC §1.3)."""
    found = violations(ctx.cluster, ctx.config)
    return _violations_plan(found) if found else RayClusterPlan(events=warning_events(ctx.cluster, ctx.config))


def keep_finalizer(ctx: PlanContext) -> RayClusterPlan:
    """Store the finalizer for Redis before the first head writes there, and remove it when it is not needed any more (RC:FIN-2, RC:FIN-4)."""
    cluster = ctx.cluster
    is_wanted = wants_finalizer(cluster, ctx.config)
    if is_wanted is is_held(cluster.raw):
        return NOTHING
    patch = finalizer_patch(cluster.raw["metadata"], is_added=is_wanted)
    # The next pass comes with the watch event of this write; there is none where a webhook takes the finalizer away again.
    found = RayClusterPlan(
        actions=(patch,), is_last=is_wanted and not _has_head(ctx), requeue_after_s=FINALIZER_INTERVAL_S
    )
    return found if is_wanted else replace(found, events=left_in_redis(cluster, ctx.config))


def ensure_owned_objects(ctx: PlanContext) -> RayClusterPlan:
    """Create the missing objects of the table, slot by slot; the autoscaler's before the head in which it runs."""
    missing = [row for row in OWNED_OBJECTS if row.is_missing(ctx.cluster, ctx.observed)]
    kinds = {row.resource for row in missing}
    due = [row for row in missing if row.waits_for not in kinds]
    creates = [_create_owned(ctx, slot, tuple(rows)) for slot, rows in groupby(due, key=attrgetter("slot"))]
    is_awaited = any(row.is_before_head for row in missing)
    is_last = is_awaited and not _has_head(ctx)
    return replace(RayClusterPlan.joined(creates), is_last=is_last, is_continued=is_awaited)


def keep_gcs_claim(ctx: PlanContext) -> RayClusterPlan:
    """Keep the owner of the claim of the GCS as `deletionPolicy` says; report one that is missing, leaving or different (RC:PVC-1..4)."""
    cluster, observed = ctx.cluster, ctx.observed
    if not has_rocksdb_fault_tolerance(cluster):
        return NOTHING
    name = PERSISTENT_VOLUME_CLAIMS, claim_name(cluster)
    if users_claim(cluster):  # kube-scheduler binds the head once it is there
        is_missing = name in observed.missing
        return RayClusterPlan(events=(messages.claim_not_found(name[1]),) if is_missing else ())
    live = observed.looked_up.get(name)
    if live is None:
        return NOTHING
    if live["metadata"].get("deletionTimestamp"):
        event = messages.claim_is_terminating(name[1])
        return RayClusterPlan(events=(event,), requeue_after_s=LOOKUP_RETRY_S, is_last=not _has_head(ctx))
    patch, found = owner_patch(cluster, live), tuple(differences(cluster, live))
    events = (messages.claim_differs(name[1], found),) if found else ()
    return RayClusterPlan(actions=(patch,) if patch else (), events=events)


def report_changed_service(ctx: PlanContext) -> RayClusterPlan:
    """Report a head service that does not select the head; like KubeRay, the operator never updates services."""
    return RayClusterPlan(events=head_service_events(ctx.cluster, ctx.observed))


def await_service_account(ctx: PlanContext) -> RayClusterPlan:
    """Wait for the service account that the head's template names; a first head needs it, a running one does not."""
    account = missing_named_account(ctx.cluster, ctx.observed)
    if not account:
        return NOTHING
    event = messages.service_account_not_found(account)
    return RayClusterPlan(events=(event,), requeue_after_s=LOOKUP_RETRY_S, is_last=not _has_head(ctx))


def hold_while_suspended(ctx: PlanContext) -> RayClusterPlan:
    """Create no pods while suspended; services and RBAC objects are kept (RC:SU-1)."""
    return RayClusterPlan(is_last=suspension_of(ctx.cluster) is not Suspension.NONE)


def hold_unprotected(ctx: PlanContext) -> RayClusterPlan:
    """Create no pods without the protection that the cluster asks for; running pods are kept (FD:RC-B3).

    It precedes `hold_while_suspended`, so that a suspended cluster reports the missing protection too.
    """
    found = missing_protection(ctx.cluster, ctx.config.pods)
    events = tuple(EventSpec(violation.event_reason, str(violation)) for violation in found)
    return RayClusterPlan(unprotected=found, events=events, is_last=bool(found))


def ensure_one_head(ctx: PlanContext) -> RayClusterPlan:
    """Keep exactly one head pod (RC:HP-1..6, RM:I2).

    A terminating head counts until it is gone. Of several heads, with which KubeRay stops with an error, the ready one
    is kept, else the oldest: its GCS has the cluster's state.
    """
    alive = [head for head in ctx.observed.heads if not head.is_terminating]
    finished = [head for head in alive if head.is_finished]
    rest = sorted((head for head in alive if not head.is_finished), key=_head_rank)
    # Ended heads that keep their place do so only while there is no other head.
    waits_s = {} if rest else ctx.observed.start_waits
    victims = [Victim(head, how_it_ended(head)) for head in finished if head.name not in waits_s]
    victims += [Victim(head, messages.other_head(rest[0].name)) for head in rest[1:]]
    if victims:
        return _end(victims, delete_head)
    if finished:
        return RayClusterPlan(requeue_after_s=min(waits_s[head.name] for head in finished))
    if rest or any(not ctx.observed.is_lost(head) for head in ctx.observed.heads):
        return NOTHING
    if ctx.observed.ownerless_heads:  # two heads behind one service would be two clusters (FD:PS3-1)
        return RayClusterPlan(events=(messages.head_pod_without_owner(ctx.observed.ownerless_heads[0]),))
    lost = head_loss(ctx.cluster, ctx.observed)
    if is_head_restart_disabled(ctx.cluster):
        return RayClusterPlan(events=lost, is_last=True)
    return replace(
        _unless_rejected(
            ctx,
            constants.HEAD_GROUP,
            lambda: [
                create_head(ctx.cluster, ctx.config.pods, ctx.namer, next(_failed_starts(ctx, constants.HEAD_GROUP)))
            ],
        ),
        events=lost,
    )


def resize_groups(ctx: PlanContext) -> RayClusterPlan:
    """Resize each worker group independently; rejections of one group do not block the others (SC:S3).

    All groups share one budget of creates. Each may use what earlier groups left, except one create reserved for every
    later group: a large group delays the others but cannot block them.
    """
    groups = ctx.cluster.spec.worker_group_specs
    plans: list[RayClusterPlan] = []
    left = MAX_WRITES
    existing_names = ctx.observed.foreign_names.union(pod.name for pod in ctx.observed.suspendable)
    for later, group in zip(range(len(groups) - 1, -1, -1), groups, strict=True):
        has_replicas = group.num_of_hosts > 1 and ctx.config.pods.has_multi_host_indexing
        most = min(left, max(1, left - later))
        resize = _resize_by_replica if has_replicas else _resize
        plans.append(resize(ctx, _inputs(ctx, group, existing_names, most)))
        left -= sum(isinstance(action, Create) for action in plans[-1].actions)
    return RayClusterPlan.joined(plans)


def drop_removed_groups(ctx: PlanContext) -> RayClusterPlan:
    """Delete workers of groups removed from the spec; with an autoscaler, once drained or at the deadline (SC:S14)."""
    wanted = {group.group_name for group in ctx.cluster.spec.worker_group_specs}
    stays = {victim: ctx.scaling.keep_until(victim.pod) for victim in removed_groups(wanted, ctx.observed.workers)}
    left_s = [(until - ctx.observed.seen_at).total_seconds() for until in stays.values() if until not in (None, LATER)]
    due = [victim for victim, until in stays.items() if until is None or until <= ctx.observed.seen_at]
    return _end(due, delete_worker) + RayClusterPlan(
        requeue_after_s=min((left for left in left_s if left > 0), default=None)
    )


def report_kept_failures(ctx: PlanContext) -> RayClusterPlan:
    """Report failed workers that are kept at the user's request."""
    return RayClusterPlan(events=kept_failures(ctx.observed))


STEPS: Final[tuple[Callable[[PlanContext], RayClusterPlan], ...]] = (
    leave_to_other_controller,
    end_suspended,
    check_spec,
    keep_finalizer,
    ensure_owned_objects,
    keep_gcs_claim,
    report_changed_service,
    await_service_account,
    hold_unprotected,
    hold_while_suspended,
    ensure_one_head,
    drop_removed_groups,
    report_kept_failures,
    resize_groups,
)


# --- shared by the steps ---------------------------------------------------------------------------------------------


def wanted_lookups(cluster: RayCluster, config: ClusterConfig) -> tuple[Lookup, ...]:
    """Objects to look up by name before planning; none for a cluster that gets no writes."""
    if not is_managed_by_us(cluster.spec.managed_by):
        return ()
    claims = claim_lookups(cluster) if constants.EMBEDDED_STORAGE_GATE in config.feature_gates else ()
    return *lookups(cluster, config.autoscaler), *secret_lookups(cluster, config.pods), *claims


def _violations_plan(found: Sequence[Violation]) -> RayClusterPlan:
    events = tuple(EventSpec(violation.event_reason, str(violation)) for violation in found)
    return RayClusterPlan(violations=tuple(found), events=events, is_last=True)


def _inputs(ctx: PlanContext, group: WorkerGroupSpec, existing_names: frozenset[str], most: int) -> GroupInputs:
    pods = ctx.observed.group(group.group_name)
    is_random_delete_enabled = ctx.config.is_random_pod_delete_enabled
    return GroupInputs(
        group,
        pods,
        ctx.scaling.desired_replicas_of(group),
        may_choose_victims=ctx.scaling.may_choose_victims(is_random_delete_enabled=is_random_delete_enabled),
        existing_names=existing_names,
        unready_nodes=ctx.observed.unready_nodes,
        arriving_indices=ctx.observed.arriving_indices(group.group_name),
        exit_grace=within_exit_grace(pods, ctx.observed.seen_at) if ctx.cluster.is_autoscaled else {},
        start_waits={
            pod.name: ctx.observed.start_waits[pod.name] for pod in pods if pod.name in ctx.observed.start_waits
        },
        most=most,
    )


def _resize(ctx: PlanContext, inputs: GroupInputs) -> RayClusterPlan:
    """Delete surplus workers of a single-host group and create missing ones; pods with a replica name are outdated."""
    has_replicas = ctx.config.pods.has_multi_host_indexing
    outdated = frozenset(pod.name for pod in inputs.pods if pod.replica_name and has_replicas)
    decision = plan_group(inputs, outdated_names=outdated)
    deletes = _shrink(inputs, decision)
    if not decision.create_indices and not decision.has_more:
        return deletes
    group = inputs.group
    creates = _unless_rejected(
        ctx,
        group.group_name,
        lambda: create_workers(
            ctx.cluster,
            group,
            decision.create_indices,
            ctx.config.pods,
            ctx.namer,
            failed_starts=_failed_starts(ctx, group.group_name),
        ),
    )
    return deletes + replace(creates, has_more=decision.has_more and creates.requeue_after_s is None)


def _resize_by_replica(ctx: PlanContext, inputs: GroupInputs) -> RayClusterPlan:
    group, name = inputs.group, inputs.group.group_name
    rejection = ctx.observed.pending_retry_of(name)
    decision = plan_replicas(inputs, lambda: replica_name(name, ctx.namer), rejection=rejection)
    creates = create_hosts(
        ctx.cluster, group, decision.new_hosts, ctx.config.pods, ctx.namer, failed_starts=_failed_starts(ctx, name)
    )
    growth = RayClusterPlan(
        actions=tuple(creates) if decision.new_hosts else (),
        given_up=frozenset({name} if decision.has_given_up else ()),
        needs_no_replica=frozenset({name} if decision.needs_none else ()),
        requeue_after_s=rejection.requeue_after_s if rejection else None,
        is_continued=decision.is_continued,
        has_more=decision.has_more,
    )
    return _shrink(inputs, decision) + growth


def _shrink(inputs: GroupInputs, decision: GroupChanges) -> RayClusterPlan:
    """Deletes of victims, an event about unknown names, and the time until a worker that ended is replaced."""
    unknown = decision.unknown_names
    rest = RayClusterPlan(
        events=(messages.unknown_workers_to_delete(inputs.group.group_name, unknown),) if unknown else (),
        unwanted=frozenset(pod.name for pod in decision.withheld),
        requeue_after_s=min(chain(inputs.exit_grace.values(), inputs.start_waits.values()), default=None),
    )
    return _end(decision.victims, delete_worker) + rest


def _failed_starts(ctx: PlanContext, group: str) -> Iterator[str]:
    """The value of `raytide.io/failed-starts` for each new pod or replica of the group; empty for those without one."""
    counts = ctx.observed.failed_starts.get(group, ())
    return chain((failed_starts_value(count, ctx.observed.spec_hash) for count in counts), repeat(""))


def _unless_rejected(ctx: PlanContext, group: str, creates: Callable[[], Iterable[Action]]) -> RayClusterPlan:
    """The creates, or only a requeue delay while the group's backoff after a rejection lasts."""
    return RayClusterPlan.unless_rejected(ctx.observed.pending_retry_of(group), creates)


def _create_owned(ctx: PlanContext, slot: str, rows: Iterable[OwnedObject]) -> RayClusterPlan:
    return _unless_rejected(ctx, slot, lambda: [row.create(ctx.cluster, ctx.config, ctx.draw_token) for row in rows])


def _has_head(ctx: PlanContext) -> bool:
    return any(not head.is_terminating for head in ctx.observed.heads)


def _end(victims: Iterable[Victim], delete: Callable[[Victim], Delete]) -> RayClusterPlan:
    return RayClusterPlan.deleting(map(delete, victims))


def _head_rank(head: PodView) -> tuple[bool, str, str]:
    return (not head.is_running_and_ready, head.creation_timestamp or NEWEST, head.name)
