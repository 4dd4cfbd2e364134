"""violations() of features: fault tolerance, history, auth, network policy, TLS (RC:V-16..V-32, V-41..V-60)."""

import pytest

from raytide.api import constants
from raytide.api.config import ClusterConfig
from raytide.api.raycluster import RayCluster
from raytide.raycluster.validation import violations
from support.builders import group, raycluster, template

ALL_GATES = ClusterConfig(
    feature_gates=frozenset(
        {"GCSFaultToleranceEmbeddedStorage", "RayClusterHistoryServer", "RayClusterNetworkPolicy", "RayClusterMTLS"}
    )
)
FT = "spec.gcsFaultToleranceOptions"
HEAD = "spec.headGroupSpec"
CONTAINER = f"{HEAD}.template.spec.containers[0]"
COLLECTOR = "spec.historyServerOptions.collectorOptions"


def head(*, params=None, env=None, mounts=None, volumes=None, containers=()):
    pod = template("ray-head", volumes=volumes or [])
    ray = pod["spec"]["containers"][0]
    ray["env"] = [{"name": name, "value": value} for name, value in (env or {}).items()]
    ray["volumeMounts"] = mounts or []
    pod["spec"]["containers"] += [{"name": name} for name in containers]
    return {"headGroupSpec": {"rayStartParams": params or {}, "template": pod}}


def ft(**options):
    return {"gcsFaultToleranceOptions": options}


def rocksdb(**options):
    return ft(backend="rocksdb", **options)


def auth(version, **options):
    return {"rayVersion": version, "authOptions": options}


def collector(env=None, **fields):
    entries = [{"name": name, "value": value} for name, value in (env or {}).items()]
    return {"historyServerOptions": {"collectorOptions": {"image": "i", "env": entries, **fields}}}


def policy(mode="DenyAll", **fields):
    return {"networkPolicy": {"mode": mode, **fields}}


def found(spec, *groups, annotations=None, config=ALL_GATES):
    obj = raycluster(*groups, **spec)
    obj["metadata"]["annotations"] = annotations or {}
    return [(fault.rule, fault.field) for fault in violations(RayCluster.parse(obj), config)]


RULES = [{"ports": []}]
BROKEN = {
    "redis by environment without options": (head(env={"RAY_REDIS_ADDRESS": "r"}), "V-17", f"{CONTAINER}.env"),
    "a redis password as a parameter": (
        ft() | head(params={"redis-password": "x"}),
        "V-18",
        f"{HEAD}.rayStartParams.redis-password",
    ),
    "a redis password by environment": (ft() | head(env={"REDIS_PASSWORD": ""}), "V-19", f"{CONTAINER}.env"),
    "a redis address by environment": (ft() | head(env={"RAY_REDIS_ADDRESS": "r"}), "V-20", f"{CONTAINER}.env"),
    "rocksdb with an address": (rocksdb(redisAddress="r"), "V-23", f"{FT}.redisAddress"),
    "rocksdb with a user": (rocksdb(redisUsername={"value": "u"}), "V-24", f"{FT}.redisUsername"),
    "rocksdb with a password": (rocksdb(redisPassword={"value": "p"}), "V-25", f"{FT}.redisPassword"),
    "rocksdb with a namespace": (rocksdb(externalStorageNamespace="n"), "V-26", f"{FT}.externalStorageNamespace"),
    "a claim with a size": (rocksdb(storage={"claimName": "c", "size": "1Gi"}), "V-27", f"{FT}.storage.claimName"),
    "rocksdb with its variable": (rocksdb() | head(env={"RAY_gcs_storage": "x"}), "V-28", f"{CONTAINER}.env"),
    "rocksdb with its path variable": (rocksdb() | head(env={"RAY_gcs_storage_path": "x"}), "V-28", f"{CONTAINER}.env"),
    "rocksdb with its mount path": (
        rocksdb() | head(mounts=[{"name": "a", "mountPath": "/data/gcs"}]),
        "V-29",
        f"{CONTAINER}.volumeMounts",
    ),
    "rocksdb with its mount name": (
        rocksdb() | head(mounts=[{"name": "gcs-storage", "mountPath": "/x"}]),
        "V-29",
        f"{CONTAINER}.volumeMounts",
    ),
    "rocksdb with its volume": (
        rocksdb() | head(volumes=[{"name": "gcs-storage"}]),
        "V-30",
        f"{HEAD}.template.spec.volumes",
    ),
    "redis with storage": (ft(storage={"size": "1Gi"}), "V-31", f"{FT}.storage"),
    "a redis user as a parameter": (
        head(params={"redis-username": "u"}),
        "V-32",
        f"{HEAD}.rayStartParams.redis-username",
    ),
    "a redis user by environment": (head(env={"REDIS_USERNAME": "u"}), "V-32", f"{CONTAINER}.env"),
    "no collector": ({"historyServerOptions": {}}, "V-42", COLLECTOR),
    "a collector without an image": (
        collector(env={"STORAGE_BACKEND": "local"}, image=""),
        "V-43",
        f"{COLLECTOR}.image",
    ),
    "a collector with our variable": (
        collector(env={"STORAGE_BACKEND": "local", "POD_IP": "x"}),
        "V-44",
        f"{COLLECTOR}.env",
    ),
    "a collector without a backend": (collector(), "V-45", f"{COLLECTOR}.env"),
    "gcs without a bucket": (collector(env={"STORAGE_BACKEND": "gcs"}), "V-46", f"{COLLECTOR}.env"),
    "s3 without a region": (collector(env={"STORAGE_BACKEND": "S3", "S3_REGION": ""}), "V-46", f"{COLLECTOR}.env"),
    "oss without an endpoint": (
        collector(env={"STORAGE_BACKEND": "AliyunOSS", "OSS_BUCKET": "b", "OSS_REGION": "r"}),
        "V-46",
        f"{COLLECTOR}.env",
    ),
    "azure without anything": (collector(env={"STORAGE_BACKEND": "AzureBlob"}), "V-46", f"{COLLECTOR}.env"),
    "azure by connection string without one": (
        collector(
            env={
                "STORAGE_BACKEND": "azureblob",
                "AZURE_STORAGE_AUTH_MODE": "connection_string",
                "AZURE_STORAGE_ACCOUNT_URL": "u",
            }
        ),
        "V-46",
        f"{COLLECTOR}.env",
    ),
    "azure by identity without a url": (
        collector(
            env={
                "STORAGE_BACKEND": "azureblob",
                "AZURE_STORAGE_AUTH_MODE": "default",
                "AZURE_STORAGE_CONNECTION_STRING": "c",
            }
        ),
        "V-46",
        f"{COLLECTOR}.env",
    ),
    "a container of the collector's name": (
        collector(env={"STORAGE_BACKEND": "local"}) | head(containers=["ray-history-collector"]),
        "V-47",
        f"{HEAD}.template.spec.containers",
    ),
    "a token without a version": (auth("", mode="token"), "V-48", "spec.rayVersion"),
    "a token with an unreadable version": (auth("nightly", mode="token"), "V-49", "spec.rayVersion"),
    "a token with an old Ray": (auth("2.51.9", mode="token"), "V-50", "spec.rayVersion"),
    "delegation with an old Ray": (auth("2.54.0", mode="token", enableK8sTokenAuth=True), "V-51", "spec.rayVersion"),
    "delegation with a secret": (
        auth("2.55.0", mode="token", enableK8sTokenAuth=True, secretName="s"),
        "V-52",
        "spec.authOptions.secretName",
    ),
    "delegation without token": (
        auth("2.55.0", enableK8sTokenAuth=True),
        "V-53",
        "spec.authOptions.enableK8sTokenAuth",
    ),
    "ingress rules where only egress is denied": (
        policy("DenyAllEgress", head={"ingressRules": RULES}),
        "V-55",
        "spec.networkPolicy.head.ingressRules",
    ),
    "egress rules where only ingress is denied": (
        policy("DenyAllIngress", worker={"egressRules": RULES}),
        "V-55",
        "spec.networkPolicy.worker.egressRules",
    ),
    "a policy for a group that does not exist": (
        policy(workerGroups=[{"groupName": "x"}]),
        "V-57",
        "spec.networkPolicy.workerGroups[0].groupName",
    ),
    "a policy of a group against the mode": (
        policy("DenyAllEgress", workerGroups=[{"groupName": "cpu", "ingressRules": RULES}]),
        "V-57",
        "spec.networkPolicy.workerGroups[0].ingressRules",
    ),
    "TLS with its variable": (
        {"tlsOptions": {"enabled": True}} | head(env={"RAY_USE_TLS": "1"}),
        "V-59",
        f"{CONTAINER}.env",
    ),
    "TLS with its mount": (
        {"tlsOptions": {"enabled": True}} | head(mounts=[{"name": "x", "mountPath": "/etc/ray/tls"}]),
        "V-59",
        f"{CONTAINER}.volumeMounts",
    ),
    "TLS with the autoscaler's variable": (
        {"tlsOptions": {"enabled": True}, "autoscalerOptions": {"env": [{"name": "RAY_TLS_CA_CERT"}]}},
        "V-60",
        "spec.autoscalerOptions.env",
    ),
    "TLS with the autoscaler's mount": (
        {"tlsOptions": {"enabled": True}, "autoscalerOptions": {"volumeMounts": [{"name": "ray-tls"}]}},
        "V-60",
        "spec.autoscalerOptions.volumeMounts",
    ),
}


@pytest.mark.rule(*sorted({f"RC:{rule}" for _, rule, _ in BROKEN.values()}))
@pytest.mark.parametrize(("spec", "rule", "field"), BROKEN.values(), ids=BROKEN)
def test_rejected(spec, rule, field):
    assert found(spec) == [(rule, field)]


SOUND = {
    "redis": ft(redisAddress="r", redisPassword={"value": "p"}, externalStorageNamespace="n"),
    "rocksdb with storage": rocksdb(storage={"size": "1Gi", "storageClassName": "s"}),
    "rocksdb with a claim": rocksdb(storage={"claimName": "c", "accessModes": []}),
    "a collector": collector(env={"STORAGE_BACKEND": "GCS", "GCS_BUCKET": "b"}),
    "a collector with a backend of its own": collector(env={"STORAGE_BACKEND": "mine"}),
    "azure by either": collector(env={"STORAGE_BACKEND": "azureblob", "AZURE_STORAGE_ACCOUNT_URL": "u"}),
    "a token": auth("2.52.0", mode="token", secretName="s"),
    "delegation": auth("2.55.0", mode="token", enableK8sTokenAuth=True),
    "authentication disabled with any Ray": auth("", mode="disabled"),
    "a policy": policy(head={"ingressRules": RULES, "egressRules": RULES}, workerGroups=[{"groupName": "cpu"}]),
    "TLS": {"tlsOptions": {"enabled": True}},
    "TLS off, with a variable of its name": {"tlsOptions": {"enabled": False}} | head(env={"RAY_USE_TLS": "1"}),
}


@pytest.mark.parametrize("spec", SOUND.values(), ids=SOUND)
def test_accepted(spec):
    assert found(spec) == []


@pytest.mark.rule("RC:V-22", "RC:V-41", "RC:V-54", "RC:V-58")
@pytest.mark.parametrize(
    ("spec", "rule", "field"),
    [
        (rocksdb(), "V-22", f"{FT}.backend"),
        ({"historyServerOptions": {}}, "V-41", "spec.historyServerOptions"),
        (policy("DenyAllEgress", head={"ingressRules": RULES}), "V-54", "spec.networkPolicy"),
        ({"tlsOptions": {"enabled": False}}, "V-58", "spec.tlsOptions"),
    ],
    ids=["rocksdb", "history server", "network policy", "TLS, even switched off"],
)
def test_a_feature_whose_gate_is_off_is_one_fault(spec, rule, field):
    assert found(spec, config=ClusterConfig()) == [(rule, field)]


@pytest.mark.rule("RC:V-16", "RC:V-21")
@pytest.mark.parametrize(
    ("annotation", "rule"),
    [(constants.FT_ENABLED_ANNOTATION, "V-16"), (constants.EXTERNAL_STORAGE_NAMESPACE_ANNOTATION, "V-21")],
)
def test_annotations_together_with_fault_tolerance_options_are_rejected(annotation, rule):
    assert found(ft(), annotations={annotation: "x"}) == [(rule, f"metadata.annotations[{annotation}]")]
    assert found({}, annotations={annotation: "x"}) == []


@pytest.mark.rule("RC:V-17")
@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_redis_by_environment_is_valid_with_the_annotation(value):
    spec = head(env={"RAY_REDIS_ADDRESS": "r"})
    assert found(spec, annotations={constants.FT_ENABLED_ANNOTATION: value}) == []


@pytest.mark.rule("RC:V-56")
def test_a_network_policy_requires_group_names_that_are_labels():
    assert found(policy(), group("A_b")) == [("V-56", "spec.workerGroupSpecs[0].groupName")]
    assert found({}, group("A_b")) == []


def test_worker_templates_are_validated_too():
    worker = group(template=template("ray-history-collector"))
    field = "spec.workerGroupSpecs[0].template.spec.containers"
    assert found(collector(env={"STORAGE_BACKEND": "local"}), worker) == [("V-47", field)]
