"""Names lead to ready pods."""

from raytide.sandbox.service_names import ServiceNames, names_of


def test_ready_addresses_and_hosts_have_names():
    endpoints = {
        "metadata": {"name": "svc", "namespace": "ns"},
        "subsets": [
            {"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2", "hostname": "host-0"}]},
            {"addresses": [{"ip": "10.0.0.1"}], "notReadyAddresses": [{"ip": "10.0.0.3"}]},
        ],
    }
    assert names_of(endpoints) == {
        "svc.ns.svc.cluster.local": ("10.0.0.1", "10.0.0.2"),
        "host-0.svc.ns.svc.cluster.local": ("10.0.0.2",),
    }


def test_the_table_follows_the_cluster(cluster):
    names = ServiceNames(cluster.store)
    cluster.create("services", "svc", spec={"selector": {"app": "ray"}, "ports": [{"port": 1}]})
    assert not names.has_changed
    cluster.pod("p", labels={"app": "ray"})
    cluster.ready("p", "10.0.0.1")
    assert names.has_changed
    assert names.take() == {"svc.default.svc.cluster.local": ("10.0.0.1",)}
    assert not names.has_changed
    cluster.delete("services", "svc")
    assert names.take() == {}


def test_a_table_made_late_knows_what_was_there(cluster):
    cluster.create("services", "svc", spec={"selector": {"app": "ray"}, "ports": [{"port": 1}]})
    cluster.pod("p", labels={"app": "ray"})
    cluster.ready("p", "10.0.0.1")
    assert ServiceNames(cluster.store).take() == {"svc.default.svc.cluster.local": ("10.0.0.1",)}
