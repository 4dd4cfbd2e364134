"""What the scenarios of TrainingJobs need: nodes that kwok plays, a real scheduler, jobs, and external pods.

Sizes come from the API server's audit log (audit.py), waiting times and places from a watch that no fault touches; both
are the cluster's own word. A `Crowd` is many jobs that share by the same rules; `Waits` knows how long pods had no node.
Made by conftest.py; used by the scenarios whose file begins with `test_training`.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Any

from acceptance.audit import Sized, Step
from acceptance.environment import SYSTEM, Account, Env
from acceptance.fleet import GONE, MERGE, Json, allowing, eventually, side_by_side
from integration.embedded_cluster import Operator
from raytide.api import trainingjob_constants as constants
from support.plane_admin import FAKE_NODE, JOB_CRD
from support.ports import free_port

JOBS = "trainingjobs"
JOB_DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/trainingjobs.paddlepaddle.org"
AT_ONCE_AND_EVEN = {"rebalance": True, "growCooldownSeconds": 0, "shrinkCooldownSeconds": 0}
"""A cooldown is a number of seconds; no scenario is about waiting."""


class Waits:
    """How long pods of jobs had no node, by this process's clock: in total, and while no external pod was ahead of them.

    External pods without a node are ahead: if they have the higher priority, kube-scheduler tries no other pod
    before it has found room for all of them.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.longest_alone_s = 0.0
        self._since: dict[str, float] = {}
        self._ahead: set[str] = set()
        self._ahead_since = 0.0
        self._alone_since = 0.0
        self._longest_ahead_s = 0.0

    def see(self, pod: Json) -> None:
        """As it is now."""
        uid = pod["metadata"]["uid"]
        if pod["spec"].get("nodeName") or "deletionTimestamp" in pod["metadata"]:
            self._end(uid)
        elif constants.JOB_LABEL in pod["metadata"].get("labels", {}):
            self._since.setdefault(uid, self._now())
        else:
            self._count()
            if not self._ahead:
                self._ahead_since = self._now()
            self._ahead.add(uid)

    def forget(self, pod: Json) -> None:
        """It is gone."""
        self._end(pod["metadata"]["uid"])

    def longest_so_far_s(self) -> float:
        """Of pods that have waited or still do."""
        self._count()
        return self.longest_s

    def longest_alone_so_far_s(self) -> float:
        """The same without the time in which others were ahead."""
        self._count()
        return self.longest_alone_s

    def longest_ahead_s(self) -> float:
        """For how long external pods were ahead at a time: what kube-scheduler needed for them on this machine."""
        return self._longest_ahead_s

    def _end(self, uid: str) -> None:
        self._count()
        self._since.pop(uid, None)
        if uid in self._ahead:
            self._ahead.discard(uid)
            self._alone_since = self._now()
            self._longest_ahead_s = max(self._longest_ahead_s, self._alone_since - self._ahead_since)

    def _count(self) -> None:
        now, first = self._now(), min(self._since.values(), default=None)
        if first is None:
            return
        self.longest_s = max(self.longest_s, now - first)
        if not self._ahead:
            self.longest_alone_s = max(self.longest_alone_s, now - max(first, self._alone_since))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


class JobEnv(Env):
    """A namespace on a control plane with a scheduler, where kwok runs what is bound."""

    waits: Waits

    async def begin(self) -> None:
        """Both kinds are served; there is no node yet."""
        if await allowing([404], self.admin.call("GET", JOB_DEFINITION)) is None:
            await self.admin.install_crd()
            await self.admin.install_crd(JOB_CRD)
        self._namespaces: set[str] = set()
        await self.make_namespaces(self.namespace)
        self.waits = Waits()
        self.pods.on_change, self.pods.on_gone = self.waits.see, self.waits.forget
        self.run(self.pods.run())
        self._nodes: list[str] = []

    async def make_namespaces(self, *more: str) -> None:
        """The operator's, and these."""
        await self.admin.make_namespaces(SYSTEM, *more)
        self._namespaces.update(more)

    async def end(self) -> None:
        """Keeps pods and nodes apart from those of other scenarios."""
        operators, self._operators = self._operators, []
        for number, operator in enumerate(operators):
            if operator.process is not None and operator.process.returncode is None:
                await operator.kill()
            (self.folder / f"operator-{number}.log").write_text(operator.log)
        for namespace in self._namespaces:
            await self.admin.call("DELETE", self.jobs_path(namespace))
            await self.admin.call("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
        for name in self._nodes:
            await allowing(GONE, self.admin.call("DELETE", f"/api/v1/nodes/{name}"))
        await super().end()

    # --- nodes ---------------------------------------------------------------------------------------------------------

    async def node(
        self,
        name: str,
        *,
        is_played: bool = True,
        is_cordoned: bool = False,
        labels: dict[str, str] | None = None,
        taints: Iterable[Json] = (),
        **amounts: str,
    ) -> str:
        """One node; Ready as soon as kwok plays it, and as its kubelet left it where kwok does not."""
        name = f"{name}-{self.namespace[-8:]}"
        capacity = {"memory": "1Ti", "pods": "500", **amounts}
        annotations = FAKE_NODE if is_played else {}
        own_labels = {"kubernetes.io/hostname": name, **(labels or {})}
        metadata = {"name": name, "annotations": annotations, "labels": own_labels}
        node = {"metadata": metadata, "spec": {"unschedulable": is_cordoned, "taints": [*taints]}}
        gone = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "stopped"}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [] if is_played else [gone]}
        await self.admin.call("POST", "/api/v1/nodes", {**node, "status": status})
        self._nodes.append(name)
        return name

    async def nodes_ready(self, *which: str) -> None:
        """Those take pods."""

        async def are_ready() -> bool:
            found = (await self.admin.call("GET", "/api/v1/nodes"))["items"]
            return {node["metadata"]["name"] for node in found if _is_ready(node)} >= set(which)

        await eventually("the nodes are ready", are_ready)

    async def cordon(self, name: str, *, is_cordoned: bool) -> None:
        """As `kubectl cordon` and `uncordon`."""
        patch = {"spec": {"unschedulable": is_cordoned}}
        await self.admin.call("PATCH", f"/api/v1/nodes/{name}", patch, content=MERGE)

    # --- the operator --------------------------------------------------------------------------------------------------

    async def shared(self, *flags: str, who: Account | None = None, **environ: str) -> "Sharing":
        """The operator, with the permissions of its chart if no account is passed."""
        who = who or await self.account("raytide-a")
        metrics = f"127.0.0.1:{free_port()}"
        operator = await self.operator(self.direct_kubeconfig(who), "--metrics-addr", metrics, *flags, **environ)
        return Sharing(self, operator, metrics, who.user)

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def jobs_path(self, namespace: str = "") -> str:
        """Of a namespace; the scenario's own where none is named."""
        return f"/apis/paddlepaddle.org/v1/namespaces/{namespace or self.namespace}/{JOBS}"

    async def submit(self, name: str, low: int, high: int, *, namespace: str = "", **spec: Any) -> None:
        """A job of trainers alone, with one CPU each by default."""
        trainer = {
            "entrypoint": "train",
            "min-instance": low,
            "max-instance": high,
            "resources": {"requests": {"cpu": "1"}},
        }
        spec = {"image": "trainer:1", "scaling": AT_ONCE_AND_EVEN, **spec}
        spec["trainer"] = {**trainer, **spec.get("trainer", {})}
        manifest = {"apiVersion": "paddlepaddle.org/v1", "kind": "TrainingJob", "metadata": {"name": name}}
        await self.admin.call("POST", self.jobs_path(namespace), {**manifest, "spec": spec})

    async def job(self, name: str, namespace: str = "") -> Json:
        """As it is now."""
        return await self.admin.call("GET", f"{self.jobs_path(namespace)}/{name}")

    async def condition(self, name: str, kind: str, namespace: str = "") -> Json:
        """One condition of a job; empty while there is none."""
        conditions = (await self.job(name, namespace)).get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    def running(self) -> Counter[str]:
        """Job -> trainers that have a node and stay."""
        found: Counter[str] = Counter()
        for pod in self.pods.by_name.values():
            labels = pod["metadata"].get("labels", {})
            if labels.get(constants.ROLE_LABEL) == constants.TRAINER and _has_place(pod):
                found[labels[constants.JOB_LABEL]] += 1
        return found

    def trainers(self, name: str) -> list[Json]:
        """The trainers of a job of the scenario's own namespace, whatever their state."""
        own = {constants.JOB_LABEL: name, constants.ROLE_LABEL: constants.TRAINER}.items()
        return [pod for pod in self.pods.by_name.values() if own <= pod["metadata"].get("labels", {}).items()]

    def has_place(self, name: str) -> bool:
        """Whether that pod is there, has a node and stays."""
        return name in self.pods.by_name and _has_place(self.pods.by_name[name])

    def placed(self) -> int:
        """How many pods of all owners have a node."""
        return sum(map(_has_place, self.pods.by_name.values()))

    # --- external pods -------------------------------------------------------------------------------------------------

    async def priority(self, name: str, value: int, **more: str) -> None:
        """A PriorityClass."""
        body = {"metadata": {"name": name}, "value": value, **more}
        await allowing([409], self.admin.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body))

    async def foreign_pods(self, prefix: str, count: int, *, cpu: str = "1", **spec: Any) -> list[str]:
        """Pods without an owner, so that only this scenario deletes them."""
        wanted = [f"{prefix}-{number}" for number in range(count)]
        container = {"name": "web", "image": "web:1", "resources": {"requests": {"cpu": cpu}}}
        body = {"containers": [container], "terminationGracePeriodSeconds": 0, **spec}
        await side_by_side(
            self.admin.call(
                "POST", self.pods.path, {"metadata": {"name": name, "labels": {"app": prefix}}, "spec": body}
            )
            for name in wanted
        )
        return wanted

    async def dismiss(self, pods: Iterable[str]) -> None:
        """They end at once."""
        await side_by_side(
            allowing(GONE, self.admin.call("DELETE", f"{self.pods.path}/{name}?gracePeriodSeconds=0")) for name in pods
        )


class Sharing:
    """An operator at work, and what it counts."""

    def __init__(self, env: JobEnv, operator: Operator, metrics: str, user: str) -> None:
        self.env = env
        self.operator = operator
        self.user = user
        self._metrics = f"http://{metrics}/metrics"

    async def passes(self) -> int:
        """How often the pool was divided so far."""
        async with self.env.admin.session.get(self._metrics) as answer:
            lines = (await answer.text()).splitlines()
        return int(float(next(line.split()[-1] for line in lines if line.startswith("pool_plan_seconds_count"))))

    async def has_reconciled(self, times: int = 3) -> None:
        """So many more passes have come and gone; each is rung for."""
        seen = await self.passes()
        number = 0

        async def is_done() -> bool:
            nonlocal number
            number += 1
            await self.env.dismiss(await self.env.foreign_pods(f"bell-{seen}-{number}", 1, cpu="0"))
            return await self.passes() >= seen + times

        await eventually(f"{times} more passes", is_done)


def sizes_by_job(steps: Iterable[Step]) -> dict[str, list[tuple[float, int]]]:
    """Job (namespace/name) -> when which size was written, changes only."""
    found: dict[str, list[tuple[float, int]]] = {}
    for step in steps:
        if isinstance(step, Sized) and step.trainers is not None:
            sizes = found.setdefault(step.job, [])
            if not sizes or sizes[-1][1] != step.trainers:
                sizes.append((step.answered_s, step.trainers))
    return found


def first_seen(steps: Iterable[Step]) -> dict[str, float]:
    """Job (namespace/name) -> when it was created."""
    found: dict[str, float] = {}
    for step in steps:
        if isinstance(step, Sized):
            found.setdefault(step.job, step.answered_s)
    return found


def _has_place(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName")) and "deletionTimestamp" not in pod["metadata"]


def _is_ready(node: Json) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")
