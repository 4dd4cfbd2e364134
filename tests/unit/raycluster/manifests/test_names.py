"""Names of pods: KubeRay's where they are unambiguous, never too long, never shared by two groups (RC §3.2, D15)."""

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from raytide.api import constants
from raytide.api.config import PodConfig
from raytide.raycluster.controller import SUFFIX_LENGTH, random_name
from raytide.raycluster.manifests.names import head_pod_name, replica_name, worker_pod_name, worker_pod_prefix
from support.builders import parsed, template, worker_group

CONFIG = PodConfig()
names_of_any_length = st.text(string.ascii_lowercase + string.digits + "-", min_size=1, max_size=70)


def namer(prefix: str) -> str:
    return f"{prefix}x2y4z"


@pytest.mark.rule("RC:POD-16", "D15")
@pytest.mark.parametrize(
    ("cluster", "group", "prefix"),
    [
        pytest.param("demo", "cpu", "demo-cpu-worker-", id="short names are KubeRay's"),
        pytest.param("demo", "GPU", "demo-gpu-worker-", id="in lower case"),
        pytest.param("c" * 46, "cpu", "c" * 46 + "-cpu-worker-", id="up to fifty characters"),
        pytest.param("c" * 47, "cpu", "c" * 41 + "-4f3c5e46-worker-", id="one more is cut, with a hash"),
        pytest.param("c" * 40 + "-d", "long-group", "c" * 40 + "-ff32a428-worker-", id="no double dash at the cut"),
    ],
)
def test_the_name_of_a_worker_has_cluster_and_group(cluster, group, prefix):
    assert worker_pod_prefix(cluster, group) == prefix
    assert worker_pod_name(parsed(name=cluster), worker_group(group), namer) == f"{prefix}x2y4z"


@pytest.mark.rule("RC §3.2")
@pytest.mark.parametrize(
    ("group", "prefix"),
    [
        pytest.param("slice", "slice-", id="the group's name as it is"),
        pytest.param("G" * 57, "G" * 57 + "-", id="up to fifty-seven characters"),
        pytest.param("g" * 58, "g" * 48 + "-f5dff54d-", id="one more is cut, with a hash"),
    ],
)
def test_a_replicas_name_begins_with_its_group_and_fits_into_a_label(group, prefix):
    assert replica_name(group, namer) == f"{prefix}x2y4z"
    assert len(replica_name(group, namer)) <= 63


@pytest.mark.rule("D15")
@given(names_of_any_length, names_of_any_length, names_of_any_length)
def test_two_groups_of_a_cluster_never_share_a_prefix(cluster, one, other):
    assume(one != other)
    assert worker_pod_prefix(cluster, one) != worker_pod_prefix(cluster, other)


@pytest.mark.rule("D15")
@given(names_of_any_length, names_of_any_length)
def test_no_name_is_longer_than_a_label_may_be(cluster, group):
    assert len(namer(worker_pod_prefix(cluster, group))) <= 63
    assert len(head_pod_name(parsed(name=cluster), CONFIG, namer)) <= 63


@pytest.mark.rule("RC:POD-1", "D15")
@pytest.mark.parametrize(
    ("cluster", "config", "own", "name"),
    [
        pytest.param("demo", CONFIG, None, "demo-head-x2y4z", id="a random part"),
        pytest.param("c" * 53, CONFIG, None, "c" * 50 + "-head-x2y4z", id="cut to fifty characters"),
        pytest.param("demo", CONFIG, "mine", "mine", id="a name in the template is kept"),
        pytest.param("demo", PodConfig(is_head_pod_name_deterministic=True), None, "demo-head", id="deterministic"),
        pytest.param(
            "demo",
            PodConfig(is_head_pod_name_deterministic=True),
            "mine",
            "demo-head",
            id="deterministic takes precedence",
        ),
    ],
)
def test_a_heads_name(cluster, config, own, name):
    pod_template = {**template(), "metadata": {"name": own} if own else {}}
    assert head_pod_name(parsed(name=cluster, headGroupSpec={"template": pod_template}), config, namer) == name


@pytest.mark.rule("D15")
def test_a_random_name_ends_in_five_letters_of_the_alphabet_each_as_likely_as_the_others():
    drawn = {random_name("demo-") for _ in range(2000)}
    assert len(drawn) > 1990, "five letters of 27 hardly ever meet"
    assert {len(name) for name in drawn} == {len("demo-") + SUFFIX_LENGTH}
    for position in range(-SUFFIX_LENGTH, 0):
        assert {name[position] for name in drawn} == set(constants.REPLICA_ALPHABET)
