"""What others take away that no watch shows is found missing by the resync (RM:F12)."""

import pytest

from simulation.autoscaled_scenarios import autoscaled
from simulation.manifests import NAME
from simulation.matrix import learn
from simulation.scenarios import Scenario
from simulation.stage import Stage
from simulation.world import NAMESPACE

pytestmark = pytest.mark.looptime

RIGHTS = ("serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io")
FOUND_WITHIN_S = 2 * 1800.0 + 60.0
"""What was there is asked for again by the first resync after half an hour, and resyncs come every half hour."""


@pytest.mark.rule("RM:F12", "RC:RB-1", "D3")
def test_an_autoscalers_rights_that_others_delete_are_made_again() -> None:
    async def tell(stage: Stage) -> None:
        await autoscaled(stage, 2, 4)
        for kind in RIGHTS:
            stage.world.store.delete(kind, NAMESPACE, NAME)
        await stage.pass_time(FOUND_WITHIN_S)
        if missing := [kind for kind in RIGHTS if stage.world.store.find(kind, NAMESPACE, NAME) is None]:
            stage.judge.note(f"not made again within {FOUND_WITHIN_S:.0f} s: {missing}")

    assert learn(Scenario("rights-taken", tell)).violations == []
