"""Real Ray adds the resources of `RAY_OVERRIDE_RESOURCES` to those of its parameters, in a process without a cluster."""

import json
import os
import subprocess
import sys

import pytest

from raytide.api import constants
from support.deadlines import PATIENCE

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]

RESOLVE = """
import json
from ray._private.resource_and_label_spec import ResourceAndLabelSpec
spec = ResourceAndLabelSpec(num_cpus=1, num_gpus=0, memory=2**31, object_store_memory=2**30, resources={"a": 1})
print(json.dumps(spec.resolve(is_head=False, node_ip_address="127.0.0.1").to_resource_dict()))
"""


@pytest.mark.rule("FD:RC3-6")
def test_ray_reads_resources_from_the_variable():
    env = os.environ | {constants.RAY_RESOURCES_VARIABLE: '{"TPU":4,"b c":2}'}
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE], env=env, check=True, capture_output=True, timeout=60 * PATIENCE
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: found[name] for name in ("a", "TPU", "b c", "CPU")} == {"a": 1, "TPU": 4, "b c": 2, "CPU": 1}
