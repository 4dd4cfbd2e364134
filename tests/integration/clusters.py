"""The API servers on which integration tests run.

`APIS` are the parameters of a fixture: the embedded API always, a real control plane under the marker `kube`;
`new_cluster` makes the one that a parameter names. Both are a `ClusterUnderTest`, so that a test does not know which it meets.
"""

import secrets
from typing import Final

import pytest

from integration.cluster_under_test import ClusterUnderTest
from integration.embedded_cluster import Cluster
from integration.kube_cluster import KubeCluster

APIS: Final = ["embedded", pytest.param("kube", marks=pytest.mark.kube)]
COLLECTED_S: Final = 60.0
"""A garbage collector that has just met a new kind takes up to half a minute to look after it."""


def new_cluster(request: pytest.FixtureRequest) -> ClusterUnderTest:
    """The API that the fixture's parameter names; not started yet."""
    if request.param == "embedded":
        return Cluster()
    return KubeCluster(request.getfixturevalue("kube_plane"), run=secrets.token_hex(3))
