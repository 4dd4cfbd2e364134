"""The API servers on which integration tests run.

`APIS` are the parameters of a fixture: the embedded API always, a real control plane under the marker `kube`;
`new_cluster` makes the one that a parameter names. Both are a `ClusterUnderTest`, so that a test does not know which it meets.
"""

import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from integration.cluster_under_test import JOB_CRD, ClusterUnderTest
from integration.embedded_cluster import Cluster, Operator
from integration.kube_cluster import KubeCluster

APIS: Final = ["embedded", pytest.param("kube", marks=pytest.mark.kube)]
COLLECTED_S: Final = 60.0
"""A garbage collector that has just met a new kind takes up to half a minute to look after it."""


def new_cluster(request: pytest.FixtureRequest) -> ClusterUnderTest:
    """The API that the fixture's parameter names; not started yet."""
    if request.param == "embedded":
        return Cluster()
    return KubeCluster(request.getfixturevalue("kube_plane"), run=secrets.token_hex(3))


@asynccontextmanager
async def cluster_with_operator(
    request: pytest.FixtureRequest, folder: Path, *flags: str
) -> AsyncIterator[ClusterUnderTest]:
    """That API with both CRDs and a running operator with these flags; its `kubeconfig` is the path of one."""
    cluster = new_cluster(request)
    await cluster.start()
    if cluster.request("GET", "/apis/paddlepaddle.org/v1/trainingjobs", limit="1")[0] != 200:
        cluster.install_crd(JOB_CRD)
    cluster.kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig")
    operator = await Operator("--sharing-period", "1s", *flags).start(cluster.kubeconfig)
    yield cluster
    code = await operator.stop()
    await cluster.stop()
    sys.stdout.write(operator.log)  # shown when a test of this file fails
    assert code == 0, operator.log
