"""Token authentication with real Ray: without the token nobody gets in, and with it everything works as ever.

The tests are one story and run in the order in which they are written.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from support.ray_environment import PRELUDE, RayEnv, answer_in, small
from support.sandbox_process import Json

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

SAMPLE = Path(__file__).parents[2] / "samples" / "raycluster-autoscaler.yaml"
ASK = """
@ray.remote(num_cpus=1)
def where():
    return pod()
print("ANSWER", ray.get(where.remote(), timeout=120))
"""
WITHOUT = "import os\nfor name in ('RAY_AUTH_MODE', 'RAY_AUTH_TOKEN'):\n    os.environ.pop(name)\n"
WRONG = "import os\nos.environ['RAY_AUTH_TOKEN'] = 'guessed'\n"
DASHBOARD = """
import os, urllib.error, urllib.request
def code(**headers):
    request = urllib.request.Request("http://127.0.0.1:8265/api/jobs/", headers=headers)
    try:
        return urllib.request.urlopen(request, timeout=30).status
    except urllib.error.HTTPError as error:
        return error.code
print("ANSWER", code(), code(Authorization="Bearer guessed"), code(Authorization="Bearer " + os.environ["RAY_AUTH_TOKEN"]))
"""


def manifest() -> Json:
    """A RayCluster whose head runs no tasks, and whose autoscaler starts the first worker."""
    found = small(yaml.safe_load(SAMPLE.read_text()))
    spec = found["spec"]
    spec["rayVersion"], spec["authOptions"] = "2.60.0", {"mode": "token"}
    spec["workerGroupSpecs"][0] |= {"replicas": 0, "minReplicas": 0, "maxReplicas": 2}
    return found


@pytest.fixture(scope="module")
def env() -> Iterator[RayEnv]:
    with RayEnv(manifest(), flags=["--auth-secrets"]) as env:
        yield env


def rejection(env: RayEnv, before: str) -> str:
    """What Ray tells a driver that changes its environment so before it connects."""
    program = f"{before}import ray\nray.init(address='auto')\nprint(ray.nodes())"
    return env.run("python", "-c", program + "\n", is_success_needed=False)


@pytest.mark.rule("RC:AU-3", "RC:POD-9")
def test_the_autoscaler_starts_a_worker_for_a_driver_with_the_token(env: RayEnv) -> None:
    (worker,) = answer_in(env.run("python", "-c", PRELUDE + ASK))
    env.until(lambda: worker in env.ready_workers(), "the worker is Ready")


@pytest.mark.rule("RC:AU-3")
@pytest.mark.parametrize("before", [WITHOUT, WRONG], ids=["without a token", "with another token"])
def test_a_driver_is_rejected(env: RayEnv, before: str) -> None:
    output = rejection(env, before)
    assert "NodeID" not in output
    assert "authentication" in output.lower() or "unauthenticated" in output.lower(), output


@pytest.mark.rule("RC:AU-3")
def test_the_dashboard_answers_only_with_the_token(env: RayEnv) -> None:
    without, wrong, right = map(int, answer_in(env.run("python", "-c", DASHBOARD)))
    assert (without, wrong, right) == (401, 403, 200)


@pytest.mark.rule("RC:AU-3")
def test_ray_status_has_the_report_of_the_autoscaler(env: RayEnv) -> None:
    assert "Autoscaler status" in env.ray_status()
    assert "Unauthenticated" not in env.sidecar_log()
