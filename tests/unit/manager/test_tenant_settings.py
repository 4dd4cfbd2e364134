"""The list of tenants: defaults, and how an error in it is reported (D25)."""

from fractions import Fraction

import pytest

from raytide.api.capacity import decode_namespace, tenants_of
from raytide.api.tenants import Tenant
from raytide.manager.tenant_settings import parse_tenants

pytestmark = pytest.mark.rule("TJ:7.13", "D25")

LIST = """
- name: research
  nominalQuota: {cpu: "40", memory: 1Gi, nvidia.com/gpu: 8}
  borrowingLimit: {cpu: 500m}
  weight: "1.5"
- name: batch
"""


def test_yaml_and_json_are_read_with_the_units_of_capacity():
    research = Tenant("research", {"cpu": 40_000, "memory": 1 << 30, "nvidia.com/gpu": 8}, {"cpu": 500}, Fraction(3, 2))
    assert parse_tenants(LIST) == (research, Tenant("batch"))
    assert parse_tenants('[{"name": "a", "weight": 2}]') == (Tenant("a", weight=Fraction(2)),)
    assert parse_tenants("") == parse_tenants("[]") == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("[{name: a, weight: 0}]", "[0].weight: must be between 0.001 and 1000", id="no weight"),
        pytest.param("[{name: a, weight: -1}]", "[0].weight: must be between 0.001 and 1000", id="a weight below 0"),
        pytest.param(
            "[{name: a, weight: heavy}]", "[0].weight: 'heavy' is not a quantity", id="a weight that is no number"
        ),
        pytest.param("[{name: a, weight: 1e9}]", "[0].weight: must be between", id="a weight beyond all others"),
        pytest.param("[{name: a}, {name: b}, {name: a}]", "[2].name: 'a' is listed twice", id="a name twice"),
        pytest.param("[{weight: 1}]", "[0].name: is required", id="no name"),
        pytest.param("[{name: a b}]", "[0].name: is not a valid label value", id="a name that no label can have"),
        pytest.param(
            "[{name: a, parent: b}]",
            "[0].parent: is none of name, nominalQuota, borrowingLimit and weight",
            id="a tenant of a tenant",
        ),
        pytest.param(
            "[{name: a, nominalQuota: {cpu: -1}}]", "[0].nominalQuota.cpu: must not be negative", id="a quota below 0"
        ),
        pytest.param(
            "[{name: a, borrowingLimit: {cpu: all}}]",
            "[0].borrowingLimit.cpu: 'all' is not a quantity",
            id="an amount that is no number",
        ),
        pytest.param(
            "[{name: a, nominalQuota: 4}]",
            "[0].nominalQuota: must be an object of resource names and quantities",
            id="a quota of nothing",
        ),
        pytest.param(
            "[{name: a, nominalQuota: {/x: 1}}]", "[0].nominalQuota./x: is not a valid resource name", id="no resource"
        ),
        pytest.param("{name: a}", "must be a list of tenants, each with a name", id="no list"),
        pytest.param("[{", "cannot be parsed as YAML", id="no YAML"),
    ],
)
def test_a_fault_names_the_field(text, fault):
    with pytest.raises(ValueError) as raised:
        parse_tenants(text)
    assert fault in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("labels", "tenants"),
    [
        pytest.param('{"raytide.io/tenant": "a"}', {"team": "a"}, id="with the label"),
        pytest.param('{"other": "a"}', {}, id="without the label"),
        pytest.param("null", {}, id="without labels"),
    ],
)
def test_a_label_of_the_namespace_names_the_tenant(labels, tenants):
    view = decode_namespace(f'{{"metadata": {{"name": "team", "labels": {labels}}}}}'.encode())
    assert tenants_of([view]) == tenants
