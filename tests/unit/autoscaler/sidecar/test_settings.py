"""The environment of the sidecar: Ray's variables, the value `inf`, and one line for invalid values."""

import re
from pathlib import Path

import pytest

from raytide.autoscaler.sidecar.settings import (
    NO_EFFECT,
    TIME_LIMITS,
    UNLIMITED,
    SettingError,
    read_settings,
    settings_without_effect,
)

PAGE = (Path(__file__).parents[4] / "docs" / "compatibility.md").read_text()


def read(**environ):
    return read_settings(environ)


@pytest.mark.rule("AS §1.3")
def test_without_variables_all_defaults_are_those_of_ray_except_the_api_timeout():
    settings = read()
    assert settings.interval_s == 5
    assert settings.recovery_s == 600
    assert settings.pending_idle_timeout_s is None
    assert settings.has_gpu_conservation
    assert (settings.metrics_port, settings.health_port) == (44217, 44218)
    assert (settings.api.host, settings.api.port, settings.api.version) == ("kubernetes.default", "443", "v1")
    assert settings.api.timeout_s == 10
    assert not settings.is_under_raytide
    assert settings.logs.has_events


WORDS = [
    ("AUTOSCALER_UPDATE_INTERVAL_S", "2", lambda s: s.interval_s, 2.0),
    ("AUTOSCALER_UPDATE_INTERVAL_S", "inf", lambda s: s.interval_s, float(UNLIMITED)),
    ("AUTOSCALER_CONSERVE_GPU_NODES", "0", lambda s: s.has_gpu_conservation, False),
    ("AUTOSCALER_METRIC_PORT", "9000", lambda s: s.metrics_port, 9000),
    ("RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S", "30", lambda s: s.pending_idle_timeout_s, 30.0),
    ("RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S", "-1", lambda s: s.pending_idle_timeout_s, None),
    ("RAY_AUTOSCALER_AVAILABILITY_RECOVERY_S", "60", lambda s: s.recovery_s, 60.0),
    ("RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", "5", lambda s: s.time_limits.allocate_s, 5),
    ("RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", "inf", lambda s: s.time_limits.allocate_s, UNLIMITED),
    ("RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", "1000000000", lambda s: s.time_limits.allocate_s, 10**9),
    ("RAY_AUTOSCALER_RECONCILE_ALLOCATE_STATUS_TIMEOUT_S", " ", lambda s: s.time_limits.allocate_s, 3600),
    ("RAY_AUTOSCALER_RECONCILE_REQUEST_STATUS_TIMEOUT_S", "60", lambda s: s.time_limits.request_s, 60),
    ("RAY_AUTOSCALER_RECONCILE_MAX_NUM_RETRY_REQUEST_TO_ALLOCATE", "0", lambda s: s.time_limits.request_retries, 0),
    ("RAY_AUTOSCALER_RECONCILE_RAY_STOP_REQUESTED_STATUS_TIMEOUT_S", "9", lambda s: s.time_limits.stop_request_s, 9),
    ("KUBERAY_CRD_VER", "v1alpha1", lambda s: s.api.version, "v1alpha1"),
    ("KUBERAY_REQUEST_TIMEOUT_S", "7", lambda s: s.api.timeout_s, 7.0),
    ("KUBERNETES_SERVICE_HOST", "10.0.0.1", lambda s: s.api.host, "10.0.0.1"),
    ("KUBERNETES_SERVICE_PORT_HTTPS", "6443", lambda s: s.api.port, "6443"),
    ("RAY_KUBERAY_CA_CERT_PATH", "/ca.crt", lambda s: s.api.ca_file, Path("/ca.crt")),
    ("RAY_HEAD_POD_NAME", "demo-head", lambda s: s.head_pod, "demo-head"),
    ("RAYTIDE_OPERATOR_VERSION", "1.2.3", lambda s: s.is_under_raytide, True),
    ("RAY_LOGGER_LEVEL", "debug", lambda s: s.logs.level, 10),
    ("RAY_ROTATION_MAX_BYTES", "1000", lambda s: s.logs.rotation_bytes, 1000),
    ("RAY_ROTATION_BACKUP_COUNT", "2", lambda s: s.logs.rotated_files, 2),
    ("RAY_SCHEDULER_EVENTS", "0", lambda s: s.logs.has_events, False),
]


@pytest.mark.rule("AS §1.3")
@pytest.mark.parametrize(("name", "text", "field", "meant"), WORDS, ids=[f"{name}={text}" for name, text, *_ in WORDS])
def test_a_variable_is_meant_as_ray_means_it(name, text, field, meant):
    assert field(read(**{name: text})) == meant


def test_the_log_level_of_the_autoscaler_takes_precedence_over_rays():
    assert read(RAY_LOGGER_LEVEL="error", RAY_AUTOSCALER_LOG_LEVEL="debug").logs.level == 10


@pytest.mark.rule("AS §1.3")
@pytest.mark.parametrize("text", ["soon", "1.5", "-1", "inf s"])
@pytest.mark.parametrize("name", TIME_LIMITS.values())
def test_a_time_limit_that_is_no_whole_number_ends_the_start(name, text):
    with pytest.raises(SettingError, match=f"{name}=.*(set an integer or `inf`|set at least 0), or unset it"):
        read(**{name: text})


@pytest.mark.rule("AS §1.3")
@pytest.mark.parametrize(("limit", "name"), TIME_LIMITS.items())
def test_every_time_limit_can_be_infinite(limit, name):
    assert getattr(read(**{name: "inf"}).time_limits, limit) == UNLIMITED


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("AUTOSCALER_UPDATE_INTERVAL_S", "soon", "an integer or `inf`"),
        ("AUTOSCALER_UPDATE_INTERVAL_S", "0", "at least 1"),
        ("AUTOSCALER_METRIC_PORT", "70000", "1 to 65535"),
        ("RAY_AUTOSCALER_AVAILABILITY_RECOVERY_S", "0", "at least 1"),
        ("RAY_AUTOSCALER_PENDING_NODE_IDLE_TIMEOUT_S", "1.5", "an integer or `inf`"),
        ("RAY_LOGGER_LEVEL", "loud", "debug, info"),
        ("RAY_KUBERAY_CLIENT_KEY_PATH", "/key", "or neither"),
    ],
)
def test_what_cannot_be_meant_is_one_line_that_names_variable_and_remedy(name, text, hint):
    with pytest.raises(SettingError) as caught:
        read(**{name: text})
    assert name in str(caught.value)
    assert hint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_variables_without_effect_are_named_with_their_reason_if_they_are_set():
    assert settings_without_effect({}) == ()
    ((name, why),) = settings_without_effect({"AUTOSCALER_MAX_CONCURRENT_LAUNCHES": "10", "HOME": "/root"})
    assert name == "AUTOSCALER_MAX_CONCURRENT_LAUNCHES"
    assert "one patch" in why


def test_the_compatibility_page_lists_every_variable():
    (_, text) = PAGE.split("\n## Environment variables of the autoscaler\n")
    named = set(re.findall(r"`([A-Z][A-Z_0-9]+)`", text.split("\n## ")[0]))
    source = (Path(__file__).parents[4] / "operator/src/raytide/autoscaler/sidecar/settings.py").read_text()
    access = (Path(__file__).parents[4] / "operator/src/raytide/autoscaler/gcs/credentials.py").read_text()
    known = set(re.findall(r'"([A-Z][A-Z0-9]*_[A-Z_0-9]+)"', source + access))
    assert known - named - {"POD_IP", "RAY_POD_IP"} == set()
    assert set(NO_EFFECT) <= named
