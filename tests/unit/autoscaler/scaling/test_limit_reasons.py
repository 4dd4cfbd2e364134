"""The reasons why groups are smaller than demanded, and the cost of computing them."""

import pytest

from raytide.autoscaler.feasibility import could_hold
from raytide.autoscaler.model import Demand, Gang, NodeType, Request, SchedulingReply, amounts_of
from raytide.autoscaler.scaling import limit_reasons as module
from raytide.autoscaler.scaling.limit_reasons import LimitInputs, reasons
from raytide.diagnosis.render import text_of

TWO_CPUS = amounts_of({"CPU": 2})


def spread(group: str, bundles: int) -> Gang:
    return Gang(group, tuple(Request(TWO_CPUS, anti_affinity=(f"_PG_{group}", "")) for _ in range(bundles)))


@pytest.mark.rule("FD:AS-A15")
def test_gangs_with_equal_requests_are_compared_with_each_full_group_once(monkeypatch):
    asked = []
    monkeypatch.setattr(module, "could_hold", lambda kind, request: asked.append(request) or could_hold(kind, request))
    types = tuple(NodeType(f"g{n}", max_nodes=1, resources=amounts_of({"CPU": 4})) for n in range(5))
    gangs = tuple(spread(f"{n:02x}", 8) for n in range(20))
    reply = SchedulingReply(unplaced=(Demand(Request(TWO_CPUS), 3),), unplaced_gangs=gangs)
    found = reasons(LimitInputs(types, reply, {kind.name: 1 for kind in types}))
    assert len(asked) == len(types)
    assert [text_of(why) for why in found["g0"]] == [
        "pending: {CPU: 2} x 163; the group is at its maximum of 1: raise maxReplicas"
    ]
