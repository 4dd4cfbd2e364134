"""What has to be written so that a RayCluster is what its spec says?

Takes the cluster, what is observed of it, the settings and a source of names, and lists the writes in order: services,
the autoscaler's rights, head pod, worker groups. It is a pure function: the same input gives the same plan, and once
everything asked for is there the plan is empty. A cluster that is somebody else's or invalid gets no writes at all; what
runs keeps running. One that is being deleted is deletion.py's. Called by the controller; rules RC §2.2, RC:HP-1..6, RC §4, RM:I2, RM:I5, D5.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypedDict

from raytide.api import names
from raytide.api.actions import MOST_WRITES, Action, Create, Delete, Remark
from raytide.api.config import ClusterConfig
from raytide.api.faults import Violation
from raytide.api.meta import PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, SERVICES, Manifest
from raytide.api.pod import PodView
from raytide.api.raycluster import RayCluster, WorkerGroupSpec
from raytide.api.wording import cut
from raytide.raycluster.deletes import delete_head, delete_suspended, delete_worker
from raytide.raycluster.endings import head_loss, how_it_ended, kept_failures
from raytide.raycluster.groups import NEWEST, GroupPlan, Victim, plan_group, removed_groups
from raytide.raycluster.objects import build_head_service, build_headless_worker_service
from raytide.raycluster.observed import Observed
from raytide.raycluster.planned import NOTHING, Plan, joined
from raytide.raycluster.pod_names import Namer, head_pod_name, replica_name, unused, worker_pod_name
from raytide.raycluster.pods import build_head_pod, build_worker_template, host_pod, worker_pod
from raytide.raycluster.protection import missing_protection
from raytide.raycluster.rbac import EVENT_REASONS, Lookup, build_rights, lookups, named_service_account
from raytide.raycluster.remarks import remarks_on
from raytide.raycluster.replicas import NewHost, ReplicaPlan, plan_replicas
from raytide.raycluster.scaling import LATER, Scaling, resting, scaling_of
from raytide.raycluster.suspension import Suspension, suspension_of
from raytide.raycluster.validation import violations
from raytide.raycluster.validation_facts import is_head_restart_disabled

SERVICE_SLOT: Final = ""
"""The `group` under which a refused service is remembered; head and workers have their own."""
HEADLESS_SLOT: Final = "(headless service)"
RIGHTS_SLOT: Final = "(autoscaler)"
"""The same for what the autoscaler needs; no worker group can have that name."""
LOOK_FOR_ACCOUNT_EVERY_S: Final = 5.0
MOST_NAMED: Final = 3
"""So many names stand in one sentence."""
LONGEST_NAME: Final = 253
"""Nothing in Kubernetes has a longer name."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What every step may look at."""

    cluster: RayCluster
    observed: Observed
    config: ClusterConfig
    namer: Namer
    scaling: Scaling


def plan(cluster: RayCluster, observed: Observed, config: ClusterConfig, namer: Namer) -> Plan:
    """Walk through the steps; each may add writes, and may be the last."""
    scaling = scaling_of(cluster, observed, config.autoscaler.mode)
    situation = Situation(cluster, observed, config, unused(namer, observed.names_in_use), scaling)
    todo = NOTHING
    for step in STEPS:
        todo += step(situation)
        if todo.is_last:
            break
    return todo


def plan_unreadable(cluster: RayCluster, observed: Observed, faults: Sequence[Violation]) -> Plan:
    """A cluster of whose spec nothing is known: a stored suspension goes on, and the faults are told."""
    situation = Situation(cluster, observed, ClusterConfig(), str, Scaling())
    return end_suspended(situation) + _refused(faults)


# --- steps -----------------------------------------------------------------------------------------------------------


def leave_to_others(now: Situation) -> Plan:
    """A cluster that another controller manages is none of our business (RC:REC-2)."""
    return Plan(is_reported=False, is_last=True) if is_someone_elses(now.cluster) else NOTHING


def end_suspended(now: Situation) -> Plan:
    """All pods go once the suspension is stored, before anything that can hold up the rest of the plan (RC §5.4).

    That the spec is invalid, or has changed its mind, is no reason to stop half-way: whoever asked waits for the room.
    """
    phase = suspension_of(now.cluster)
    if phase is Suspension.NONE:
        return NOTHING
    alive = [Victim(pod, "the RayCluster is suspended") for pod in now.observed.pods if not pod.is_terminating]
    if not phase.ends_pods:  # what is in flight is not asked for again
        alive = [victim for victim in alive if not victim.pod.uid]
    return replace(_end(alive, delete_suspended), is_status_gated=True)


def refuse_invalid(now: Situation) -> Plan:
    """An invalid spec stops every write, and says so; what runs keeps running (RC §1.3)."""
    faults = violations(now.cluster, now.config)
    return _refused(faults) if faults else Plan(remarks=remarks_on(now.cluster, now.config))


def ensure_head_service(now: Situation) -> Plan:
    """One head service, created once and never changed (RC:HS-1)."""
    if now.observed.head_service is not None:
        return NOTHING
    manifest = build_head_service(now.cluster, now.config.pods)
    create = Create(SERVICES, manifest, names.CREATED_SERVICE, names.FAILED_TO_CREATE_SERVICE, SERVICE_SLOT)
    return _unless_refused(now, SERVICE_SLOT, lambda: [create])


def ensure_headless_worker_service(now: Situation) -> Plan:
    """One service for the hosts of all multi-host groups, made once and never changed (RC:HL-1)."""
    has_hosts = any(group.num_of_hosts > 1 for group in now.cluster.spec.worker_group_specs)
    if not has_hosts or now.observed.has_headless_worker_service:
        return NOTHING
    manifest = build_headless_worker_service(now.cluster)
    create = Create(SERVICES, manifest, names.CREATED_SERVICE, names.FAILED_TO_CREATE_SERVICE, HEADLESS_SLOT)
    return _unless_refused(now, HEADLESS_SLOT, lambda: [create])


def ensure_autoscaler_rights(now: Situation) -> Plan:
    """Account, role and binding of an autoscaler before the head in which it runs (RC:RB-1, RC:RB-2).

    Only what is known to be missing is created, and nothing is changed. A binding waits for its role and a first head for
    all of them, because the API server refuses what refers to something missing; beside a head that runs nothing waits.
    """
    account = named_service_account(now.cluster)
    is_last = not any(not head.is_terminating for head in now.observed.heads)
    if account and (SERVICE_ACCOUNTS, account) in now.observed.absent:
        note = (
            f"service account {account}, which the head's template names, does not exist; create it, or remove the name"
        )
        remark = Remark(names.AUTOSCALER_SERVICE_ACCOUNT_NOT_FOUND, note)
        return Plan(remarks=(remark,), look_again_in=LOOK_FOR_ACCOUNT_EVERY_S, is_last=is_last)
    missing = [
        Create(resource, manifest, *EVENT_REASONS[resource], RIGHTS_SLOT)
        for resource, manifest in build_rights(now.cluster, now.config.autoscaler)
        if (resource, manifest["metadata"]["name"]) in now.observed.absent
    ]
    if not missing:
        return NOTHING
    if any(create.resource == ROLES for create in missing):
        missing = [create for create in missing if create.resource != ROLE_BINDINGS]
    return replace(_unless_refused(now, RIGHTS_SLOT, lambda: missing), is_last=is_last, is_continued=True)


def hold_while_suspended(now: Situation) -> Plan:
    """Services and rights are kept, no pod is made (RC:SU-1)."""
    return Plan(is_last=suspension_of(now.cluster) is not Suspension.NONE)


def hold_unprotected(now: Situation) -> Plan:
    """No pod is made without the protection that its cluster asks for; those that run keep what they have (FD:RC-B3).

    Whoever suspends or resumes a cluster is told so too, so this comes before `hold_while_suspended`.
    """
    faults = missing_protection(now.cluster)
    remarks = tuple(Remark(fault.event_reason, str(fault)) for fault in faults)
    return Plan(unprotected=faults, remarks=remarks, is_last=bool(faults))


def ensure_one_head(now: Situation) -> Plan:
    """Exactly one head pod (RC:HP-1..6, RM:I2).

    A dying head counts until it is gone. Where KubeRay gives up on several heads, the ready one, else the oldest, stays:
    it is the one whose GCS knows the cluster.
    """
    alive = [head for head in now.observed.heads if not head.is_terminating]
    finished = [head for head in alive if head.is_finished]
    rest = sorted((head for head in alive if not head.is_finished), key=_head_rank)
    victims = [Victim(head, how_it_ended(head)) for head in finished]
    victims += [Victim(head, f"{rest[0].name} is this cluster's head") for head in rest[1:]]
    if victims:
        return _end(victims, delete_head)
    if rest or any(not now.observed.is_lost(head) for head in now.observed.heads):
        return NOTHING
    lost = head_loss(now.cluster, now.observed)
    if is_head_restart_disabled(now.cluster):
        return Plan(remarks=lost, is_last=True)
    return replace(_unless_refused(now, names.HEAD_GROUP, lambda: [_create_head(now)]), remarks=lost)


def resize_groups(now: Situation) -> Plan:
    """Every worker group, each on its own: one that is refused holds up nobody else (SC:S3).

    All groups share one budget of creates. Each may use what earlier ones left, but for one create kept for every later
    group: a large group delays the others and never stops them.
    """
    groups = now.cluster.spec.worker_group_specs
    plans: list[Plan] = []
    left = MOST_WRITES
    for later, group in zip(range(len(groups) - 1, -1, -1), groups, strict=True):
        has_replicas = group.num_of_hosts > 1 and now.config.pods.has_multi_host_indexing
        most = min(left, max(1, left - later))
        plans.append(_resize_by_replica(now, group, most) if has_replicas else _resize(now, group, most))
        left -= sum(isinstance(action, Create) for action in plans[-1].actions)
    return joined(plans)


def drop_removed_groups(now: Situation) -> Plan:
    """Workers of groups that left the spec go; beside an autoscaler once they are drained, or their time is up (SC:S14)."""
    wanted = {group.group_name for group in now.cluster.spec.worker_group_specs}
    stays = {victim: now.scaling.last_stay_of(victim.pod) for victim in removed_groups(wanted, now.observed.workers)}
    left_s = [(until - now.observed.seen_at).total_seconds() for until in stays.values() if until not in (None, LATER)]
    due = [victim for victim, until in stays.items() if until is None or until <= now.observed.seen_at]
    return _end(due, delete_worker) + Plan(look_again_in=min((left for left in left_s if left > 0), default=None))


def tell_kept_failures(now: Situation) -> Plan:
    """Failed workers that stay because their user asked for it."""
    return Plan(remarks=kept_failures(now.observed))


STEPS: Final[tuple[Callable[[Situation], Plan], ...]] = (
    leave_to_others,
    end_suspended,
    refuse_invalid,
    ensure_head_service,
    ensure_headless_worker_service,
    ensure_autoscaler_rights,
    hold_unprotected,
    hold_while_suspended,
    ensure_one_head,
    drop_removed_groups,
    tell_kept_failures,
    resize_groups,
)


# --- what the steps share --------------------------------------------------------------------------------------------


def wanted_lookups(cluster: RayCluster, config: ClusterConfig) -> tuple[Lookup, ...]:
    """What has to be looked for by name before a plan is made; nothing for a cluster that gets no writes."""
    return () if is_someone_elses(cluster) else lookups(cluster, config.autoscaler)


def is_someone_elses(cluster: RayCluster) -> bool:
    """Whether another controller manages it."""
    return cluster.spec.managed_by not in (None, "", names.MANAGED_BY_US)


def _refused(faults: Sequence[Violation]) -> Plan:
    remarks = tuple(Remark(fault.event_reason, str(fault)) for fault in faults)
    return Plan(violations=tuple(faults), remarks=remarks, is_last=True)


class _Circumstances(TypedDict):
    """What decisions about one group depend on besides its pods and its order."""

    may_choose_victims: bool
    foreign_names: frozenset[str]
    unready_nodes: frozenset[str]
    resting_names: Mapping[str, float]


def _circumstances(now: Situation, group: WorkerGroupSpec) -> _Circumstances:
    observed, is_random_delete_enabled = now.observed, now.config.is_random_pod_delete_enabled
    elsewhere = {pod.name for pod in observed.pods if pod.group != group.group_name or not pod.is_worker}
    pods = observed.group(group.group_name) if now.cluster.is_autoscaled else ()
    return {
        "may_choose_victims": now.scaling.may_choose_victims(is_random_delete_enabled=is_random_delete_enabled),
        "foreign_names": observed.foreign_names | elsewhere,
        "unready_nodes": observed.unready_nodes,
        "resting_names": resting(pods, observed.seen_at),
    }


def _resize(now: Situation, group: WorkerGroupSpec, most: int) -> Plan:
    pods, circumstances = now.observed.group(group.group_name), _circumstances(now, group)
    has_replicas = now.config.pods.has_multi_host_indexing
    outdated = frozenset(pod.name for pod in pods if pod.replica_name and has_replicas)
    decision = plan_group(group, pods, now.scaling.order_of(group), outdated_names=outdated, most=most, **circumstances)
    deletes = _shrink(group, decision, circumstances)
    if not decision.new_indices and not decision.has_more:
        return deletes
    creates = _unless_refused(now, group.group_name, lambda: _create_workers(now, group, decision.new_indices))
    return deletes + replace(creates, has_more=decision.has_more and creates.look_again_in is None)


def _resize_by_replica(now: Situation, group: WorkerGroupSpec, most: int) -> Plan:
    pods, circumstances = now.observed.group(group.group_name), _circumstances(now, group)
    refusal = now.observed.refusal_of(group.group_name)
    decision = plan_replicas(
        group,
        pods,
        now.scaling.order_of(group),
        lambda: replica_name(group.group_name, now.namer),
        refusal=refusal,
        most=most,
        **circumstances,
    )
    growth = Plan(
        actions=tuple(_create_hosts(now, group, decision.new_hosts)) if decision.new_hosts else (),
        given_up=frozenset({group.group_name} if decision.has_given_up else ()),
        needs_no_replica=frozenset({group.group_name} if decision.needs_none else ()),
        look_again_in=refusal.look_again_in if refusal else None,
        is_continued=decision.is_continued,
        has_more=decision.has_more,
    )
    return _shrink(group, decision, circumstances) + growth


def _shrink(group: WorkerGroupSpec, decision: GroupPlan | ReplicaPlan, circumstances: _Circumstances) -> Plan:
    """Who goes, which names mean nobody, and when a worker that exited 0 has rested enough."""
    remarks = (_remark_on_strangers(group, decision.strangers),) if decision.strangers else ()
    rest = Plan(remarks=remarks, look_again_in=min(circumstances["resting_names"].values(), default=None))
    return _end(decision.victims, delete_worker) + rest


def _unless_refused(now: Situation, group: str, creates: Callable[[], Iterable[Action]]) -> Plan:
    """The creates, or only the moment to come back when the API refused the last ones a short while ago."""
    refusal = now.observed.refusal_of(group)
    return Plan(actions=tuple(creates())) if refusal is None else Plan(look_again_in=refusal.retry_in_s)


def _create_head(now: Situation) -> Create:
    name = head_pod_name(now.cluster, now.config.pods, now.namer)
    return Create(
        PODS,
        build_head_pod(now.cluster, now.config.pods, name),
        because=names.CREATED_HEAD_POD,
        otherwise=names.FAILED_TO_CREATE_HEAD_POD,
        group=names.HEAD_GROUP,
    )


def _create_workers(now: Situation, group: WorkerGroupSpec, indices: tuple[int, ...]) -> Iterable[Create]:
    template = build_worker_template(now.cluster, group, now.config.pods)
    for index in indices:
        name = worker_pod_name(now.cluster, group, now.namer)
        yield _create_worker(
            group, worker_pod(template, name, index if now.config.pods.has_multi_host_indexing else None)
        )


def _create_hosts(now: Situation, group: WorkerGroupSpec, hosts: Iterable[NewHost]) -> Iterable[Create]:
    template = build_worker_template(now.cluster, group, now.config.pods)
    for host in hosts:
        name = worker_pod_name(now.cluster, group, now.namer)
        yield _create_worker(group, host_pod(template, name, host, group.num_of_hosts))


def _create_worker(group: WorkerGroupSpec, manifest: Manifest) -> Create:
    return Create(
        PODS,
        manifest,
        because=names.CREATED_WORKER_POD,
        otherwise=names.FAILED_TO_CREATE_WORKER_POD,
        group=group.group_name,
    )


def _end(victims: Iterable[Victim], delete: Callable[[Victim], Delete]) -> Plan:
    """Deletes for pods that exist; a pod that may or may not exist is only named."""
    chosen = tuple(victims)
    return Plan(
        actions=tuple(delete(victim) for victim in chosen if victim.pod.uid),
        unwanted=frozenset(victim.pod.name for victim in chosen if not victim.pod.uid),
    )


def _remark_on_strangers(group: WorkerGroupSpec, strangers: Sequence[str]) -> Remark:
    """One sentence, however many there are: events are shared by everybody."""
    some = ", ".join(cut(name, LONGEST_NAME) for name in strangers[:MOST_NAMED])
    where = f"in scaleStrategy.workersToDelete {{}} of group {group.group_name}"
    if len(strangers) == 1:
        note = f"{some} {where.format('is no worker')}; it is left alone"
    else:
        more = "" if len(strangers) <= MOST_NAMED else f" and {len(strangers) - MOST_NAMED} more names"
        note = f"{some}{more} {where.format('are no workers')}; they are left alone, remove them from the list"
    return Remark(names.INVALID_SPEC, note, group.group_name)


def _head_rank(head: PodView) -> tuple[bool, str, str]:
    return (not head.is_running_and_ready, head.creation_timestamp or NEWEST, head.name)
