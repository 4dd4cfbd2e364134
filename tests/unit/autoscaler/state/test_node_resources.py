"""The resources of one node of a group: the table of AS:C-8."""

from typing import Any

import pytest

from raytide.autoscaler.state.node_resources import FieldError, node_resources

pytestmark = pytest.mark.rule("AS:C-8")

TPU_V4 = {"cloud.google.com/gke-tpu-topology": "2x2x4", "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice"}


def read(
    params: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    requests: dict[str, Any] | None = None,
    group: dict[str, Any] | None = None,
    selector: dict[str, Any] | None = None,
):
    containers = [{"resources": {"limits": limits, "requests": requests}}, {"resources": {"limits": {"cpu": "99"}}}]
    spec = {"containers": containers, "nodeSelector": selector}
    return node_resources({"rayStartParams": params, "resources": group, "template": {"spec": spec}})


@pytest.mark.parametrize(
    ("sources", "cpus"),
    [
        pytest.param(
            {"group": {"CPU": "8"}, "params": {"num-cpus": "4"}, "limits": {"cpu": "2"}}, 8, id="the group first"
        ),
        pytest.param(
            {"params": {"num-cpus": "4"}, "limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, 4, id="then num-cpus"
        ),
        pytest.param({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}, 2, id="then the limit"),
        pytest.param({"requests": {"cpu": "1"}}, 1, id="then the request"),
        pytest.param({}, None, id="otherwise unknown: other containers do not count"),
        pytest.param({"limits": {"cpu": "500m"}}, 1, id="half a CPU counts as one"),
        pytest.param({"limits": {"cpu": "2500m"}}, 3, id="rounded up"),
        pytest.param({"limits": {"cpu": 2}}, 2, id="a JSON number"),
        pytest.param({"limits": {"cpu": 0.1}}, 1, id="a JSON fraction"),
        pytest.param({"params": {"num-cpus": "0"}, "limits": {"cpu": "2"}}, 0, id="num-cpus 0 means none"),
        pytest.param({"params": {"num-cpus": 3}}, 3, id="num-cpus as a number"),
        pytest.param({"group": {"cpu": "6"}}, 6, id="lower case, as the operator reads it"),
        pytest.param({"group": {"CPU": "1500m"}}, 2, id="the group's quantity, rounded up"),
    ],
)
def test_cpus(sources, cpus):
    assert read(**sources).amounts.get("CPU") == cpus


@pytest.mark.parametrize(
    ("sources", "memory"),
    [
        pytest.param({"limits": {"memory": "1.5Gi"}}, 1610612736, id="a fraction of a binary unit"),
        pytest.param({"requests": {"memory": "1G"}}, 10**9, id="a decimal unit"),
        pytest.param(
            {"params": {"memory": "1000"}, "limits": {"memory": "1Gi"}}, 1000, id="the parameter before the limit"
        ),
        pytest.param({"group": {"memory": "2Ki"}}, 2048, id="the group's own"),
        pytest.param({"limits": {"memory": "1e3"}}, 1000, id="an exponent"),
        pytest.param({}, None, id="left out"),
    ],
)
def test_memory(sources, memory):
    assert read(**sources).amounts.get("memory") == memory


@pytest.mark.parametrize(
    ("sources", "gpus"),
    [
        pytest.param({"group": {"GPU": "0"}, "limits": {"nvidia.com/gpu": "2"}}, 0, id="the group may set zero"),
        pytest.param({"params": {"num-gpus": "3"}, "limits": {"nvidia.com/gpu": "2"}}, 3, id="num-gpus"),
        pytest.param({"limits": {"nvidia.com/gpu": "2"}}, 2, id="a limit that ends with gpu"),
        pytest.param(
            {"limits": {"nvidia.com/gpu": "0"}, "requests": {"amd.com/gpu": 1}}, 1, id="none of it is passed over"
        ),
        pytest.param({"limits": {"a/gpu": 1, "b/gpu": 2}}, 1, id="the first key"),
        pytest.param(
            {"limits": {"nvidia.com/mig-1g.5gb": "2"}}, 2, id="MIG slices, as the operator passes them to Ray"
        ),
        pytest.param({"group": {"nvidia.com/mig-1g.5gb": 3}}, 3, id="MIG slices in the group's resources"),
        pytest.param(
            {"limits": {"nvidia.com/mig-1g.5gb.shared": 1}}, None, id="a name that the operator does not pass either"
        ),
        pytest.param({"group": {"nvidia.com/gpu": 4}}, 4, id="by its Kubernetes name in the group's resources"),
        pytest.param({"limits": {"gpu-memory": 5}}, None, id="the name has to end so"),
    ],
)
def test_gpus(sources, gpus):
    assert read(**sources).amounts.get("GPU") == gpus


@pytest.mark.rule("AS:C-10", "AS:B-20")
@pytest.mark.parametrize(
    "text",
    [
        '"{\\"widget\\": 2, \\"gadget\\": 1}"',
        '\'{"widget": 2, "gadget": 1}\'',
        '{"widget": 2, "gadget": 1}',
        ' `{"widget": 2.0, "gadget": 1}` ',
        '"{\\"widget\\": \\"2\\", \\"gadget\\": 0.5}"',
        {"widget": 2, "gadget": 1},
    ],
    ids=["escaped", "quoted", "bare", "fractions of zero", "texts and fractions", "an object"],
)
def test_custom_resources_in_every_spelling(text):
    assert read(params={"resources": text}).amounts == {"widget": 2, "gadget": 1}


@pytest.mark.parametrize("text", ["", "[1]", "3", "{", '{"a": true}', '{"a": -1}', "[" * 100_000], ids=lambda t: t[:9])
def test_what_is_no_json_object_of_amounts_is_rejected(text):
    with pytest.raises(FieldError, match="resources"):
        read(params={"resources": text})


def test_the_groups_resources_replace_those_of_the_parameters():
    found = read(group={"CPU": "1", "widget": "500m"}, params={"resources": '{"gadget": 1}'})
    assert found.amounts == {"CPU": 1, "widget": 1}


def test_fractions_that_ray_would_not_start_with_are_reported():
    found = read(params={"num-cpus": "1.5", "resources": '{"a": 0.5}'})
    assert (found.amounts, len(found.warnings)) == ({"CPU": 2, "a": 1}, 2)
    assert all("accepts integers only" in warning for warning in found.warnings)


def test_whole_numbers_are_no_warning():
    assert read(params={"num-cpus": "2", "memory": "1000", "resources": '{"a": 2}'}).warnings == ()


@pytest.mark.parametrize(
    ("sources", "amounts"),
    [
        pytest.param(
            {"limits": {"google.com/tpu": 4}, "selector": TPU_V4}, {"TPU": 4, "TPU-v4-32-head": 1}, id="v4: two cores"
        ),
        pytest.param(
            {
                "limits": {"google.com/tpu": 8},
                "selector": {
                    "cloud.google.com/gke-tpu-topology": "4x4",
                    "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
                },
            },
            {"TPU": 8, "TPU-v5litepod-16-head": 1},
            id="v5 lite: one core",
        ),
        pytest.param(
            {"requests": {"google.com/tpu": 4}, "selector": {**TPU_V4, "cloud.google.com/gke-tpu-accelerator": "tpu9"}},
            {"TPU": 4},
            id="an unknown generation has no head resource",
        ),
        pytest.param(
            {"params": {"resources": '{"TPU": 4}'}, "selector": TPU_V4}, {"TPU": 4, "TPU-v4-32-head": 1}, id="custom"
        ),
        pytest.param({"group": {"TPU": 4}, "selector": TPU_V4}, {"TPU": 4, "TPU-v4-32-head": 1}, id="the group's own"),
        pytest.param({"limits": {"google.com/tpu": 0}}, {}, id="none"),
    ],
)
def test_tpus(sources, amounts):
    found = read(**sources)
    assert {**found.amounts, **found.first} == amounts, "with what the first host of each replica has besides"
    assert all(name.endswith("-head") for name in found.first)


@pytest.mark.parametrize(
    "selector", [{}, {**TPU_V4, "cloud.google.com/gke-tpu-topology": "big"}], ids=["no topology", "no numbers"]
)
def test_tpus_without_a_topology_are_tpus_with_a_warning(selector):
    found = read(limits={"google.com/tpu": 4}, selector=selector)
    assert (found.amounts, len(found.warnings)) == ({"TPU": 4}, 1)


@pytest.mark.rule("AS:B-12")
def test_neuron_cores_are_known_unless_the_user_names_accelerators():
    limits = {"aws.amazon.com/neuroncore": "2"}
    assert read(limits=limits).amounts == {"neuron_cores": 2}
    assert read(limits=limits, params={"resources": '{"neuron_cores": 1}'}).amounts == {"neuron_cores": 1}


@pytest.mark.parametrize(
    ("sources", "guessed"),
    [
        ({"requests": {"memory": "1Gi"}, "limits": {"cpu": 1}}, {"memory"}),
        ({"limits": {"memory": "1Gi"}}, set()),
        ({"params": {"memory": "1"}}, set()),
        ({"group": {"memory": "1"}}, set()),
    ],
    ids=["only requested", "limited", "a parameter", "the group's own"],
)
def test_memory_is_passed_to_ray_unless_it_is_only_requested(sources, guessed):
    assert read(**sources).guessed == guessed
