"""Accelerator types of groups without live nodes, compared with the names that the installed Ray gives to devices."""

from typing import Any

import pytest
from ray._private.accelerators.amd_gpu import amd_product_dict
from ray._private.accelerators.nvidia_gpu import NvidiaGPUAcceleratorManager
from ray.util.accelerators import accelerators as of_ray

from raytide.autoscaler.state.accelerators import AMD_BY_DEVICE_ID, NVIDIA, accelerator_of
from raytide.autoscaler.state.node_types import node_types
from support.builders import group, template

pytestmark = pytest.mark.rule("FD:AS3-3", "AS:B-12")

GKE = "cloud.google.com/gke-accelerator"
PRODUCT = "nvidia.com/gpu.product"
SIZES_OF_A100 = {of_ray.NVIDIA_A100_40G, of_ray.NVIDIA_A100_80G}
"""Ray gives these names to no node."""


def affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    """A required node affinity of alternative terms."""
    found = [{"matchExpressions": expressions} for expressions in terms]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}}


def inside(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def kind_of(spec: dict[str, Any], resource: str = "nvidia.com/gpu") -> str:
    """Accelerator type of a group with this pod spec."""
    made = template("ray-worker", **spec)
    made["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "8", resource: "1"}}
    return accelerator_of(group("gpu", template=made), {"GPU": 1})


def test_the_names_of_nvidia_gpus_are_those_of_ray():
    listed = {value for name, value in vars(of_ray).items() if name.startswith("NVIDIA_")} - SIZES_OF_A100
    assert listed <= NVIDIA
    assert NVIDIA - listed == {"A10"}, "detected by Ray as it is named, but not listed"


def test_the_names_of_amd_gpus_are_those_of_ray():
    assert {f"0x{number}": name for number, name in AMD_BY_DEVICE_ID.items()} == {
        number.lower(): name for number, name in amd_product_dict.items()
    }


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("nvidia-gb200", "GB200"),
        ("nvidia-gb300", "GB300"),
        ("nvidia-rtx-pro-6000", "RTX-PRO-6000"),
        ("nvidia-b200", "B200"),
        ("nvidia-h100-80gb", "H100"),
        ("nvidia-tesla-t4", "T4"),
    ],
)
def test_gke_names_the_accelerator(value: str, kind: str):
    assert kind_of({"nodeSelector": {GKE: value}}) == kind


@pytest.mark.parametrize(
    "device",
    [
        "NVIDIA GB200",
        "NVIDIA GB300",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition",
        "NVIDIA H100 80GB HBM3",
        "NVIDIA A100-SXM4-40GB",
        "Tesla V100-SXM2-16GB",
        "NVIDIA L40S",
        "NVIDIA A10",
    ],
)
def test_a_product_has_the_name_that_ray_gives_to_the_device(device: str):
    name = NvidiaGPUAcceleratorManager._gpu_name_to_accelerator_type(device)
    assert kind_of({"nodeSelector": {PRODUCT: device.replace(" ", "-")}}) == name


@pytest.mark.parametrize("key", ["amd.com/gpu.device-id", "beta.amd.com/gpu.device-id"])
def test_the_device_id_names_an_amd_gpu(key: str):
    assert kind_of({"nodeSelector": {key: "74a1"}}, "amd.com/gpu") == of_ray.AMD_INSTINCT_MI300x
    assert not kind_of({"nodeSelector": {key: "ffff"}}, "amd.com/gpu")


L4 = inside(GKE, "nvidia-l4")


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        pytest.param({"affinity": affinity([L4])}, "L4", id="one value is as good as a nodeSelector"),
        pytest.param({"affinity": affinity([inside("zone", "a", "b"), L4])}, "L4", id="beside another expression"),
        pytest.param(
            {"affinity": affinity([L4, inside("zone", "a")], [L4, inside("zone", "b")])},
            "L4",
            id="in every alternative",
        ),
        pytest.param({"affinity": affinity([L4], [inside("zone", "b")])}, "", id="in one alternative only"),
        pytest.param({"affinity": affinity([L4], [inside(GKE, "nvidia-gb200")])}, "", id="alternatives differ"),
        pytest.param({"affinity": affinity([inside(GKE, "nvidia-l4", "nvidia-gb200")])}, "", id="two values"),
        pytest.param({"affinity": affinity([inside(GKE, "nvidia-l4", operator="NotIn")])}, "", id="not in"),
        pytest.param({"affinity": affinity()}, "", id="no terms"),
        pytest.param(
            {"affinity": affinity([L4]), "nodeSelector": {GKE: "nvidia-gb200"}}, "GB200", id="nodeSelector first"
        ),
        pytest.param(
            {
                "affinity": {
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 1, "preference": {"matchExpressions": [L4]}}
                        ]
                    }
                }
            },
            "",
            id="a preference is no requirement",
        ),
        pytest.param({"affinity": affinity([{"key": GKE, "operator": "In", "values": "nvidia-l4"}])}, "", id="no list"),
        pytest.param({"affinity": affinity(["odd", {"key": 1, "operator": "In", "values": [2]}])}, "", id="odd"),
    ],
)
def test_a_required_node_affinity_names_the_accelerator(spec: dict[str, Any], kind: str):
    assert kind_of(spec) == kind


def test_a_tpu_slice_is_known_by_its_required_node_affinity():
    labels = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "2x4"}
    made = template("ray-worker", affinity=affinity([inside(key, value) for key, value in labels.items()]))
    made["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "8", "google.com/tpu": "4"}}
    found = node_types({"workerGroupSpecs": [group("tpu", template=made)]}, asked={"accelerator_type:TPU-V6E"})
    assert {"TPU-v6e-8-head", "accelerator_type:TPU-V6E"} <= {name for name, _ in found.types[1].resources}
    assert not found.problems
