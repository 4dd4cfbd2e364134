"""Hundreds of idle RayClusters cost the operator a few reads and nothing else (SC:S17, divided by five).

Writes, reads and containers are counted over half an hour of virtual time; CPU, resident memory and sidecars are measured by
the benchmarks (PF:P7, PF:P8).
"""

from collections import Counter

import pytest

from raytide.metrics import REGISTRY
from raytide_sandbox.apiserver.request_response import Request
from support import virtual_time

from simulation.environment import Environment, log_errors_as_violations
from simulation.footprint import footprint
from simulation.manifests import group, new_cluster
from simulation.simulated_kube import node_status

pytestmark = [pytest.mark.slow, pytest.mark.looptime, pytest.mark.timeout(600)]

DIVISOR = 5
CLUSTERS, WORKERS, NODES = 1_000 // DIVISOR, 4, 500 // DIVISOR
QUIET_S = 1_800.0
READS_PER_S = 1.0 / DIVISOR
CREATED_WITHIN_S = 258.0
REST_S = 120.0
"""Until state that is kept for a time after a creation is dropped."""


class Calls:
    """Counts the requests that reach the API server, without those of watches."""

    def __init__(self, env: Environment) -> None:
        self.counts: Counter[str] = Counter()
        self._inner = env.transport.on_request
        env.transport.on_request = self._count

    def _count(self, request: Request) -> None:
        self.counts["LIST" if request.method == "GET" and request.path.endswith("s") else request.method] += 1
        self._inner(request)


@pytest.mark.rule("SC:S17", "PF:P8")
def test_idle_clusters_cause_no_write_no_list_and_few_reads() -> None:
    async def run() -> tuple[float, Counter[str], list[str]]:
        env = Environment(17)
        calls = Calls(env)
        with log_errors_as_violations(env.checks):
            for number in range(NODES):
                node = {"metadata": {"name": f"idle-{number}"}, "status": node_status("True")}
                env.kube.store.create("nodes", node)
            for number in range(CLUSTERS):
                env.kube.create(new_cluster([group("a", WORKERS)], f"c{number:03d}"))
            env.open()
            env.start()
            took_s = await env.settle(CREATED_WITHIN_S)
            await env.pass_time(REST_S)
            before = footprint(env.operator.controllers, watches=env.transport.open_watches, registry=REGISTRY)
            calls.counts.clear()
            await env.pass_time(QUIET_S)
            quiet = Counter(calls.counts)
            after = footprint(env.operator.controllers, watches=env.transport.open_watches, registry=REGISTRY)
            assert after.items == before.items
            assert (after.tasks, after.watches, after.series) == (before.tasks, before.watches, before.series)
            await env.close()
        return took_s, quiet, env.checks.violations

    took_s, quiet, violations = virtual_time.run(run())
    assert violations == []
    assert took_s <= CREATED_WITHIN_S
    assert set(quiet) == {"GET"}
    assert quiet["GET"] <= READS_PER_S * QUIET_S
