"""Hundreds of RayClusters at rest cost the operator a few reads and nothing else (SC:S17, divided by five).

Writes, reads and containers are counted over half an hour of virtual time; CPU, resident memory and sidecars are measured by
the benchmarks (PF:P7, PF:P8).
"""

from collections import Counter

import pytest

from raytide.metrics import REGISTRY
from raytide_sandbox.apiserver.request_response import Request
from support import virtual_time

from simulation.footprint import footprint
from simulation.manifests import group, new_cluster
from simulation.stage import Stage, heard_by
from simulation.world import node_status

pytestmark = [pytest.mark.looptime, pytest.mark.timeout(600)]

DIVISOR = 5
CLUSTERS, WORKERS, NODES = 1_000 // DIVISOR, 4, 500 // DIVISOR
QUIET_S = 1_800.0
READS_PER_S = 1.0 / DIVISOR
CREATED_WITHIN_S = 258.0
REST_S = 120.0
"""Until what was remembered for a time after the creation is dropped."""


class Calls:
    """Counts the requests that reach the API server, without those of watches."""

    def __init__(self, stage: Stage) -> None:
        self.counts: Counter[str] = Counter()
        self._inner = stage.wire.witness
        stage.wire.witness = self._count

    def _count(self, request: Request) -> None:
        self.counts["LIST" if request.method == "GET" and request.path.endswith("s") else request.method] += 1
        self._inner(request)


@pytest.mark.rule("SC:S17", "PF:P8")
def test_clusters_at_rest_cause_no_write_no_list_and_few_reads() -> None:
    async def live() -> tuple[float, Counter[str], list[str]]:
        stage = Stage(17)
        calls = Calls(stage)
        with heard_by(stage.judge):
            for number in range(NODES):
                node = {"metadata": {"name": f"idle-{number}"}, "status": node_status("True")}
                stage.world.store.create("nodes", node)
            for number in range(CLUSTERS):
                stage.world.create(new_cluster([group("a", WORKERS)], f"c{number:03d}"))
            stage.open()
            stage.start()
            took_s = await stage.settle(CREATED_WITHIN_S)
            await stage.pass_time(REST_S)
            before = footprint(stage.operator.controllers, watches=stage.wire.open_watches, registry=REGISTRY)
            calls.counts.clear()
            await stage.pass_time(QUIET_S)
            quiet = Counter(calls.counts)
            after = footprint(stage.operator.controllers, watches=stage.wire.open_watches, registry=REGISTRY)
            assert after.items == before.items
            assert (after.tasks, after.watches, after.series) == (before.tasks, before.watches, before.series)
            await stage.close()
        return took_s, quiet, stage.judge.violations

    took_s, quiet, violations = virtual_time.run(live())
    assert violations == []
    assert took_s <= CREATED_WITHIN_S
    assert set(quiet) == {"GET"}
    assert quiet["GET"] <= READS_PER_S * QUIET_S
