"""Flags and environment variables, as KubeRay spells them."""

from fractions import Fraction

import click
import pytest
from click.testing import CliRunner

import raytide.cli
from raytide.api.config import DEFAULT_FEATURE_GATES, AutoscalerConfig, JobConfig, SharingConfig
from raytide.api.constants import VERSION
from raytide.api.lease import LeaseTiming
from raytide.api.meta import RAYCLUSTERS, TRAININGJOBS
from raytide.api.node_autoscaler import Presence
from raytide.api.rbac_rules import Feature
from raytide.api.tenants import Tenant
from raytide.cli.operator import UNSUPPORTED_FLAGS, command
from raytide.cli.sharing_options import sharing_config, sharing_options
from raytide.manager.settings import (
    Settings,
    gates_without_effect,
    parse_feature_gates,
    parse_max_load,
    parse_namespaces,
    parse_seconds,
    variables_without_effect,
)


def call(*flags, **environment):
    """`raytide operator` as a user calls it: a command that is called alone would keep the spelling of help that it then had."""
    return CliRunner().invoke(raytide.cli.main, ["operator", *flags], env=environment)


@pytest.mark.rule("RC §6.5")
@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("ENABLE_INIT_CONTAINER_INJECTION", "False", "is_init_container_injected", False),
        ("ENABLE_INIT_CONTAINER_INJECTION", "no", "is_init_container_injected", True),
        ("ENABLE_PROBES_INJECTION", "false", "is_probe_injected", False),
        ("ENABLE_LOGIN_SHELL", "TRUE", "is_login_shell", True),
        ("ENABLE_LOGIN_SHELL", "1", "is_login_shell", False),
        ("ENABLE_DETERMINISTIC_HEAD_POD_NAME", "true", "is_head_pod_name_deterministic", True),
        ("ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE", "true", "is_head_service_cluster_ip", True),
        ("CLUSTER_DOMAIN", "example.org", "cluster_domain", "example.org"),
        ("CLUSTER_DOMAIN", "", "cluster_domain", "cluster.local"),
    ],
)
def test_switches_of_pods(monkeypatch, variable, value, field, expected):
    monkeypatch.setenv(variable, value)
    assert getattr(Settings().cluster_config().pods, field) == expected


@pytest.mark.parametrize(("value", "expected"), [("false", False), ("FALSE", False), ("0", True), ("", True)])
def test_the_clean_up_of_redis_takes_its_permissions_with_it(monkeypatch, value, expected):
    monkeypatch.setenv("ENABLE_GCS_FT_REDIS_CLEANUP", value)
    assert Settings().cluster_config().cleans_up_redis is expected
    assert (Feature.REDIS_CLEANUP in Settings().features) is expected


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("1", False), ("", False)])
def test_random_pod_delete(monkeypatch, value, expected):
    monkeypatch.setenv("ENABLE_RANDOM_POD_DELETE", value)
    assert Settings().cluster_config().is_random_pod_delete_enabled is expected


@pytest.mark.rule("FD:RC3-1")
@pytest.mark.parametrize(("host", "is_ipv6"), [("fd00:10:96::1", True), ("10.96.0.1", False), ("", False)])
def test_pods_have_the_family_of_the_api_servers_service(monkeypatch, host, is_ipv6):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    assert Settings().cluster_config().pods.is_ipv6 is is_ipv6
    assert Settings().job_config().is_ipv6 is is_ipv6


def test_defaults_are_kuberays():
    config = Settings().cluster_config()
    assert config.feature_gates == DEFAULT_FEATURE_GATES
    assert (config.pods.is_init_container_injected, config.pods.is_login_shell) == (True, False)
    assert config.pods.operator_version.startswith("raytide-")


@pytest.mark.rule("RC §6.4")
def test_feature_gates():
    gates = parse_feature_gates("RayMultiHostIndexing=false, RayCronJob=true")
    assert gates == (DEFAULT_FEATURE_GATES - {"RayMultiHostIndexing"}) | {"RayCronJob"}
    assert not Settings(feature_gates=gates).cluster_config().pods.has_multi_host_indexing
    with pytest.raises(ValueError, match="Wrong"):
        parse_feature_gates("Wrong")


def test_a_gate_that_would_be_ignored_cannot_be_switched_on():
    with pytest.raises(ValueError, match="not implemented yet"):
        parse_feature_gates("KubernetesWAS=true")


def test_a_gate_that_is_not_built_may_be_off():
    assert parse_feature_gates("KubernetesWAS=false") == DEFAULT_FEATURE_GATES


def test_variables_that_change_nothing_are_found():
    environ = {"ENABLE_WEBHOOKS": "true", "ENABLE_LOGIN_SHELL": "true", "USE_INGRESS_ON_OPENSHIFT": ""}
    assert variables_without_effect(environ) == ("ENABLE_WEBHOOKS",)


@pytest.mark.rule("FD:RC-B13")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", (), id="as they come"),
        pytest.param(
            "RayCronJob=true,SidecarSubmitterRestart=true", ("RayCronJob=true", "SidecarSubmitterRestart=true"), id="on"
        ),
        pytest.param("RayClusterStatusConditions=false", ("RayClusterStatusConditions=false",), id="off"),
        pytest.param("RayCronJob=false,RayMultiHostIndexing=false", (), id="as it is anyway, or supported"),
    ],
)
def test_gates_that_change_nothing_are_found(text, expected):
    assert gates_without_effect(parse_feature_gates(text)) == expected


@pytest.mark.rule("FD:RC-B13")
def test_a_feature_gate_without_an_effect_is_logged_at_start(monkeypatch, caplog):
    async def run_operator(_settings):
        return 0

    monkeypatch.setattr("raytide.manager.main.run_operator", run_operator)
    monkeypatch.setattr("raytide.runtime.logs.install", lambda *_format: None)
    with caplog.at_level("WARNING"):
        assert call("--feature-gates", "RayCronJob=true").exit_code == 0
    assert "feature gate RayCronJob=true has no effect" in caplog.text


@pytest.mark.parametrize(("text", "expected"), [("", ()), ("a", ("a",)), ("a, b,", ("a", "b"))])
def test_namespaces(text, expected):
    assert parse_namespaces(text) == expected


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        *(pytest.param([flag, "x"], f"{flag}: {why}", id=flag) for flag, why in UNSUPPORTED_FLAGS.items()),
        pytest.param(["--leader-election-lease-duration", "x"], "'x' is not a duration", id="no duration"),
        pytest.param(["--leader-election-lease-duration", "1500ms"], "whole seconds", id="half a second of lease"),
        pytest.param(
            ["--leader-election-lease-duration=20s"],
            "--leader-election-renew-deadline (20 s) must be shorter than --leader-election-lease-duration (20 s)",
            id="a lease that ends with its deadline",
        ),
        pytest.param(
            ["--leader-election-retry-period=11s"],
            "--leader-election-retry-period (11 s) must be at most half of --leader-election-renew-deadline (20 s)",
            id="one renewal in a deadline",
        ),
        pytest.param(
            ["--controllers", "rayjob"],
            "unknown controller 'rayjob'; known are raycluster, trainingjob",
            id="a controller of another kind",
        ),
        pytest.param(["--log-format", "xml"], "'xml' is not one of", id="an unknown log format"),
        pytest.param(["--no-such-flag"], "--no-such-flag", id="an unknown flag"),
        pytest.param(["--metrics-addr", "somewhere"], "'somewhere' is not an address", id="an address that is none"),
        pytest.param(["--feature-gates", "X"], "'X' is not NAME=true or NAME=false", id="a gate without a value"),
        pytest.param(["--feature-gates", "X=true"], "unknown feature gate 'X'; known are", id="an unknown gate"),
        pytest.param(["--enable-metrics=false"], "use --metrics-addr=0", id="metrics switched off KubeRay's way"),
        pytest.param(["--forced-cluster-upgrade"], "it has no effect", id="a flag that does nothing in KubeRay either"),
        pytest.param(["--rebalance-gap", "1"], "'1' must be at least 0 and below 1", id="a gap of all"),
        pytest.param(["--rebalance-gap", "-1/3"], "'-1/3' must be at least 0 and below 1", id="a gap below nothing"),
        pytest.param(
            ["--rebalance-gap", "1/0"], "'1/0' is not a fraction such as 1/3 or 0.25", id="a gap of no number"
        ),
        pytest.param(
            ["--rebalance-gap", "0.9999"], "'0.9999' must be at least 0 and below 1", id="a gap of nearly all"
        ),
        pytest.param(["--victims-per-trainer", "0"], "0 is not in the range 1<=x<=1000", id="no victims"),
        pytest.param(
            ["--reservation-period", "10ms"], "'10ms' is neither 0s nor at least 1s", id="a short reservation"
        ),
        pytest.param(["--tenants", "[{name: a, weight: 0}]"], "[0].weight: must be between", id="no weight"),
        pytest.param(["--max-load", "cpu=200"], "'cpu=200' is not RESOURCE=PERCENT", id="a load of more than all"),
        pytest.param(["--sharing-period", "often"], "'often' is not a duration", id="a period that is none"),
        pytest.param(["--reconcile-concurrency", "0"], "--reconcile-concurrency", id="no workers"),
    ],
)
def test_a_flag_without_effect_is_rejected_by_name(flags, message):
    result = call(*flags)
    assert result.exit_code == 2
    assert message in result.output


@pytest.fixture
def settings_of(monkeypatch):
    """Run the command with these arguments and environment; returns the settings with which the operator would run."""
    seen = []

    async def run_operator(settings):
        seen.append(settings)
        return 7

    monkeypatch.setattr("raytide.manager.main.run_operator", run_operator)
    monkeypatch.setattr("raytide.runtime.logs.install", lambda *_format: None)

    def run(*flags, **environment):
        result = call(*flags, **environment)
        assert result.exit_code == 7, result.output
        return seen.pop()

    return run


def test_every_option_is_a_field_of_the_settings():
    options = [option for option in command.params if option.expose_value]
    assert len(options) == 28
    assert {option.name for option in options} <= Settings.model_fields.keys()


@pytest.mark.parametrize(
    ("variable", "value", "field", "wanted"),
    [
        ("RAYTIDE_KUBECONFIG", "k", "kubeconfig", "k"),
        ("RAYTIDE_WATCH_NAMESPACE", "a,b", "watch_namespaces", ("a", "b")),
        ("RAYTIDE_RECONCILE_CONCURRENCY", "3", "reconcile_concurrency", 3),
        ("RAYTIDE_METRICS_ADDR", "0", "metrics_address", "0"),
        ("RAYTIDE_HEALTH_PROBE_BIND_ADDRESS", ":1", "health_address", ":1"),
        ("RAYTIDE_LOG_LEVEL", "debug", "log_level", "debug"),
        ("RAYTIDE_LOG_FORMAT", "json", "log_format", "json"),
        ("RAYTIDE_CONTROLLERS", "trainingjob", "controllers", ("trainingjob",)),
        ("RAYTIDE_AUTOSCALER_RBAC", "false", "creates_autoscaler_rbac", False),
        ("RAYTIDE_AUTH_SECRETS", "true", "creates_auth_secrets", True),
        ("RAYTIDE_FEATURE_GATES", "RayCronJob=true", "feature_gates", DEFAULT_FEATURE_GATES | {"RayCronJob"}),
        ("RAYTIDE_ENABLE_LEADER_ELECTION", "false", "is_leader_election_enabled", False),
        ("RAYTIDE_LEADER_ELECTION_NAMESPACE", "ns", "leader_election_namespace", "ns"),
        ("RAYTIDE_LEADER_ELECTION_LEASE_DURATION", "1m", "lease_duration_s", 60),
        ("RAYTIDE_LEADER_ELECTION_RENEW_DEADLINE", "25s", "renew_deadline_s", 25.0),
        ("RAYTIDE_LEADER_ELECTION_RETRY_PERIOD", "400ms", "retry_period_s", 0.4),
        ("RAYTIDE_AUTOSCALER_MODE", "ray", "autoscaler_mode", "ray"),
        ("RAYTIDE_AUTOSCALER_IMAGE", "r/a:1", "autoscaler_image", "r/a:1"),
        ("RAYTIDE_STATE_TRACKS_READINESS", "true", "state_tracks_readiness", True),
        ("RAYTIDE_SHARING_PERIOD", "10s", "sharing_period_s", 10.0),
        ("RAYTIDE_MAX_LOAD", "cpu=90", "max_load_percent", {"cpu": 90}),
        ("RAYTIDE_GPU_RESOURCES", "x.example/npu", "gpu_resources", {"x.example/npu"}),
        ("RAYTIDE_REBALANCE_GAP", "0.25", "rebalance_gap", Fraction(1, 4)),
        ("RAYTIDE_VICTIMS_PER_TRAINER", "2", "victims_per_trainer", 2),
        ("RAYTIDE_RESERVATION_PERIOD", "1h", "reservation_s", 3600.0),
        ("RAYTIDE_NODE_AUTOSCALER", "present", "node_autoscaler", Presence.PRESENT),
        ("RAYTIDE_TENANTS", "- name: a", "tenants", (Tenant("a"),)),
        ("RAYTIDE_ETCD_IMAGE", "r/etcd:1", "etcd_image", "r/etcd:1"),
        ("RAYTIDE_ENABLE_METRICS", "true", "metrics_address", ":8080"),
        ("RAYTIDE_QPS", "3", "metrics_address", ":8080"),
    ],
)
def test_an_environment_variable_is_read_like_its_flag(settings_of, variable, value, field, wanted):
    assert getattr(settings_of(**{variable: value}), field) == wanted
    assert getattr(settings_of(), field) == Settings.model_fields[field].get_default(call_default_factory=True)


@pytest.mark.rule("FD:UX-9")
@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        pytest.param([], "text", id="default"),
        pytest.param(["--log-format=json"], "json", id="its own name"),
        pytest.param(["--log-stdout-encoder", "json"], "json", id="KubeRay's name"),
        pytest.param(["--log-stdout-encoder", "console"], "text", id="KubeRay's other value"),
    ],
)
def test_the_log_format_has_kuberays_name_too(settings_of, flags, wanted):
    assert settings_of(*flags).log_format == wanted


@pytest.mark.rule("FD:SEC-F10")
def test_a_controller_that_is_not_listed_is_off(settings_of):
    assert settings_of().kinds == (RAYCLUSTERS, TRAININGJOBS)
    assert settings_of("--controllers=trainingjob,raycluster").kinds == (RAYCLUSTERS, TRAININGJOBS)
    assert settings_of("--controllers=trainingjob").kinds == (TRAININGJOBS,)
    assert settings_of("--autoscaler-rbac=false").cluster_config().autoscaler.creates_rbac is False


def test_an_environment_variable_of_a_flag_without_effect_is_rejected():
    result = call(RAYTIDE_ENABLE_METRICS="false")
    assert result.exit_code == 2
    assert "use --metrics-addr=0" in result.output


def test_every_flag_reaches_the_settings(settings_of):
    flags = ["--kubeconfig", "k", "--watch-namespace", "a,b", "--reconcile-concurrency", "3", "--metrics-addr", "0"]
    flags += ["--health-probe-bind-address", ":1", "--log-level", "debug", "--enable-leader-election=false"]
    flags += ["--leader-election-namespace", "ns", "--leader-election-lease-duration", "1m"]
    flags += ["--leader-election-renew-deadline", "2s", "--leader-election-retry-period", "400ms"]
    flags += ["--feature-gates", "RayCronJob=true", "--enable-metrics=true"]
    flags += ["--etcd-image", "registry.example/etcd:1"]
    flags += ["--autoscaler-mode", "ray", "--autoscaler-image", "registry.example/raytide:1"]
    flags += ["--state-tracks-readiness"]
    flags += [
        "--sharing-period",
        "10s",
        "--max-load",
        "cpu=90, memory=95%",
        "--gpu-resources",
        "nvidia.com/gpu,x.example/npu",
    ]
    flags += ["--rebalance-gap", "1/5", "--victims-per-trainer", "3", "--reservation-period", "0s"]
    flags += ["--node-autoscaler", "absent"]
    flags += ["--tenants", "[{name: a, nominalQuota: {cpu: 1500m}, weight: 2}]"]
    settings = settings_of(*flags)
    assert (settings.kubeconfig, settings.watch_namespaces, settings.reconcile_concurrency) == ("k", ("a", "b"), 3)
    assert (settings.metrics_address, settings.health_address, settings.log_level) == ("0", ":1", "debug")
    assert "RayCronJob" in settings.feature_gates
    assert (settings.is_leader_election_enabled, settings.leader_election_namespace) == (False, "ns")
    assert settings.lease_timing() == LeaseTiming(60, 2.0, 0.4)
    assert settings.cluster_config().autoscaler == AutoscalerConfig("ray", "registry.example/raytide:1")
    assert settings.job_config().etcd_image == "registry.example/etcd:1"
    assert settings.cluster_config().state_tracks_readiness
    assert settings.sharing_config() == SharingConfig(
        period_s=10.0,
        max_load_percent={"cpu": 90, "memory": 95},
        gpus=frozenset({"nvidia.com/gpu", "x.example/npu"}),
        rebalance_gap=Fraction(1, 5),
        victims_per_trainer=3,
        reservation_s=0.0,
        node_autoscaler=Presence.ABSENT,
        tenants=(Tenant("a", {"cpu": 1500}, {}, Fraction(2)),),
    )


@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("RAYTIDE_FEATURE_GATES", "RayCronJob=true", "feature_gates", DEFAULT_FEATURE_GATES | {"RayCronJob"}),
        ("RAYTIDE_MAX_LOAD", "cpu=90", "max_load_percent", {"cpu": 90}),
        ("RAYTIDE_GPU_RESOURCES", "a.example/x,b.example/y", "gpu_resources", {"a.example/x", "b.example/y"}),
        ("RAYTIDE_SHARING_PERIOD", "5s", "sharing_period_s", 5.0),
    ],
)
def test_a_flag_may_be_a_variable(monkeypatch, variable, value, field, expected):
    seen = []

    async def run_operator(settings):
        seen.append(settings)
        return 0

    monkeypatch.setattr("raytide.manager.main.run_operator", run_operator)
    monkeypatch.setattr("raytide.runtime.logs.install", lambda *_format: None)
    result = call(**{variable: value})
    assert result.exit_code == 0, result.output or result.exception
    assert getattr(seen[0], field) == expected


def test_jobs_share_the_whole_cluster_by_default(monkeypatch):
    assert Settings().sharing_config() == SharingConfig()
    monkeypatch.setenv("CLUSTER_DOMAIN", "corp.example")
    assert Settings().job_config() == JobConfig(f"raytide-{VERSION}", "corp.example")


def test_flags_have_the_same_defaults(monkeypatch):
    """Those of the operator, which are its settings then, and those of `raytide plan`."""
    seen = []

    async def run_operator(settings, *_args, **_kwargs):
        seen.append(settings)
        return 0

    monkeypatch.setattr("raytide.manager.main.run_operator", run_operator)
    monkeypatch.setattr("raytide.runtime.logs.install", lambda *_format: None)
    assert call().exit_code == 0
    assert seen[0].sharing_config() == SharingConfig()
    flags = {}
    click.command()(sharing_options(lambda **values: flags.update(values))).main([], standalone_mode=False)
    assert sharing_config(**flags) == SharingConfig()


@pytest.mark.parametrize("text", ["cpu", "cpu=", "=90", "cpu=0", "cpu=101", "cpu=0.9", "cpu=-1"])
def test_a_load_that_is_no_percentage_is_rejected(text):
    with pytest.raises(ValueError, match="is not RESOURCE=PERCENT"):
        parse_max_load(text)


def test_the_autoscaler_is_raytides_published_image_by_default(monkeypatch):
    ours = Settings().cluster_config().autoscaler
    assert (ours.mode, ours.image) == ("raytide", f"ghcr.io/raytide/raytide:{VERSION}")
    monkeypatch.setenv("RAYTIDE_AUTOSCALER_MODE", "ray")
    monkeypatch.setenv("RAYTIDE_AUTOSCALER_IMAGE", "mine:2")
    assert Settings().cluster_config().autoscaler == AutoscalerConfig("ray", "mine:2")


@pytest.mark.rule("RC §6.3")
@pytest.mark.parametrize(
    ("given", "namespace", "is_in_cluster", "expected"),
    [
        pytest.param(None, "", True, True, id="in a cluster, as KubeRay"),
        pytest.param(None, "", False, False, id="on a person's machine"),
        pytest.param(None, "ns", False, True, id="on a person's machine, with a namespace for the lease"),
        pytest.param(True, "", False, True, id="switched on"),
        pytest.param(False, "ns", True, False, id="switched off"),
    ],
)
def test_where_a_leader_is_elected(given, namespace, is_in_cluster, expected):
    settings = Settings(is_leader_election_enabled=given, leader_election_namespace=namespace)
    assert settings.has_leader_election(is_in_cluster=is_in_cluster) is expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("20", 20.0), ("20s", 20.0), ("1m30s", 90.0), ("400ms", 0.4), ("1.5s", 1.5), ("1h", 3600.0)]
)
def test_durations(text, seconds):
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-3s", "3 s", "3d", "1s!"])
def test_what_is_no_duration_is_rejected(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_seconds(text)


def test_tests_may_let_sharing_settle_sooner(monkeypatch):
    assert Settings().sharing_config().settle_s == 1.0
    monkeypatch.setenv("RAYTIDE_SHARING_SETTLE", "0.25")
    assert Settings().sharing_config().settle_s == 0.25
