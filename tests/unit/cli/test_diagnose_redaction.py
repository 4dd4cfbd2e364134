"""What `raytide diagnose` removes from objects, messages and logs: tables, and a property over drawn manifests."""

import gzip
import json
import re
import string
import time
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from raytide.api import constants
from raytide.api.autoscaler_decision import DecisionRecord, GroupDecision, encode_record
from raytide.cli.diagnose.bundle import Bundle
from raytide.cli.diagnose.harmless import ENTRIES, FLAGS, FREE_FIELDS, KEPT_FIELDS
from raytide.cli.diagnose.redact_objects import DEEPEST, Redactor, reduced_definition, reduced_node
from raytide.cli.diagnose.redact_text import LONGEST_LINE, REDACTED, redact_text
from raytide.diagnosis.model import Diagnosis

GOLDEN = Path(__file__).parents[2] / "golden" / "kuberay"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
DIGEST = "sha256:" + "3f" * 32
MARK = re.compile(r"<redacted [0-9a-f]{8}>")


def redactor():
    return Redactor(b"key", ("watch-namespace", "log-level", "tenants"))


def redacted(obj):
    """The redacted object, with `<redacted>` for each mark."""
    return json.loads(MARK.sub(REDACTED, json.dumps(redactor().object(obj))))


# --- texts -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "0/3 nodes are available: 3 Insufficient cpu.",
        "2026-01-01 12:00:00,123 level=INFO logger=raytide created pod demo-x-px7jz controller=raycluster name=demo pass=12",
        '{"level": "info", "msg": "created", "controller": "raycluster", "namespace": "team", "name": "demo", "pass": "3"}',
        'MountVolume.SetUp failed for volume "redis" : secret "redis-password" not found',
        f'Failed to pull image "ghcr.io/acme/ray:2.9@{DIGEST}": not found',
        "RayCluster team/demo of uid 3b241101-e2bb-4255-8caf-4136c566a962: RayClusterProvisioned",
        "pod text-bert-trainer-12 on node ip-10-0-3-7.eu-west-1.compute.internal",
        "File /usr/local/lib/python3.11/site-packages/raytide/kube/http.py, line 12, in request",
        "pod mytask-trainer-12 on node disk-pressure-42.msg.example-company.internal, highs_something and task-a-longer-name-of-it",
        "node i-0123456789abcdef0 of gke-prod-pool-1a2b3c4d-x9z8 with NVIDIA-A100-SXM4-80GB and Standard_ND96isr_H100_v5",
        "dial tcp 10.0.0.1:6379: connect: connection refused",
        "pending: {CPU: 1} x 2; the group is at its maximum of 2: raise maxReplicas",
        "the token is expired",
        "",
    ],
)
def test_a_text_without_credentials_stays(text):
    assert redact_text(text) == text


@pytest.mark.parametrize(
    ("text", "secret", "expected"),
    [
        ("connect to redis://ada:hunter2@redis:6379/0", "hunter2", "connect to redis://<redacted>@redis:6379/0"),
        ("connect to redis://:hu@nter2@redis:6379", "hu@nter2", "connect to redis://<redacted>@redis:6379"),
        ("ada:hunter2@redis:6379 refused", "hunter2", "<redacted>@redis:6379 refused"),
        ("mail ada@example.com", "ada", "mail <redacted>@example.com"),
        ("GET https://x.example/a?sig=abc 403", "abc", "GET https://x.example/a?<redacted> 403"),
        ("--redis-password=hunter2", "hunter2", "--redis-password=<redacted>"),
        ("--api-key hunter2 --x", "hunter2", "--api-key <redacted>"),
        ("PGPASSWORD: correct horse", "horse", "PGPASSWORD: <redacted>"),
        ("DB_PASS=12", "12", "DB_PASS=<redacted>"),
        ("controller x: pass=hunter2", "hunter2", "controller x: pass=<redacted>"),
        ('{"token": "hunter2", "a": 1}', "hunter2", '{"token": <redacted>'),
        ("{'secret_key': 'hunter2'}", "hunter2", "{'secret_key': <redacted>"),
        ('{\\"apiKey\\":\\"hunter2\\"}', "hunter2", '{\\"apiKey\\":<redacted>'),
        ("the password is hunter2", "hunter2", "the password <redacted>"),
        ("wrong password hunter2", "hunter2", "wrong password <redacted>"),
        ("the token is hunter2", "hunter2", "the token is <redacted>"),
        ("with token hunter2", "hunter2", "with token <redacted>"),
        ("Authorization: Bearer hunter2", "hunter2", "Authorization: <redacted>"),
        ("curl -H 'Bearer hunter2'", "hunter2", "curl -H 'Bearer <redacted>"),
        ("key AKIAIOSFODNN7EXAMPLE used", "AKIAIOSFODNN7EXAMPLE", "key <redacted> used"),
        ("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "K7MDENG", "<redacted>"),
        ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F", "<redacted>"),
        ("(sk-proj-abcdefghijklmnopqrstuv)", "abcdefgh", "<redacted>"),
        ("used hf_abcdefghijklmnop", "abcdefgh", "used <redacted>"),
        (f"got {JWT}.", JWT, "got <redacted>"),
        ("id 9f86d081884c7d659a2feaa0c55ad015", "9f86d081", "id <redacted>"),
        ("value dGhpcyBpcyBhIHNlY3JldA==", "dGhpcyBp", "value <redacted>"),
        ("value Zm9vYmFyYmF6", "Zm9vYmFy", "value <redacted>"),
        ("value ab12cd34ef56gh78ij90", "ab12cd34", "value <redacted>"),
        ('User "ada@example.com" cannot list', "ada", "User <redacted> cannot list"),
        ('User \\"ada\\" cannot list', "ada", "User <redacted> cannot list"),
        ("system:serviceaccount:other-team:dev", "other-team", "system:serviceaccount:<redacted>"),
    ],
)
def test_what_looks_like_a_credential_is_removed(text, secret, expected):
    found = redact_text(text)
    assert found == expected
    assert secret not in found
    assert redact_text(found) == found


PEM = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\nIIrYSSNQFaA2Hwf1\nshort=\n-----END EC PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"a\n{PEM}\nb", "a\n<redacted>\nb", id="several lines"),
        pytest.param(f"a {json.dumps(PEM)} b", 'a "<redacted>" b', id="one line with escapes"),
        pytest.param("a\n" + PEM.partition("\n-----END")[0], "a\n<redacted>", id="cut at its end"),
        pytest.param(PEM.partition("-----\n")[2] + "\nb", f"{REDACTED}\nb", id="cut at its beginning"),
        pytest.param(f"{PEM}{PEM}\nb", "<redacted>\nb", id="two"),
    ],
)
def test_pem_blocks_are_removed(text, expected):
    found = redact_text(text)
    assert not [part for part in ("MHcCAQEE", "IIrYSS", "short=") if part in found]
    assert found == expected


def test_a_line_that_is_cut_loses_the_word_at_the_cut():
    text = "x " * (LONGEST_LINE // 2 - 2) + "hunter2hunter2" + " y" * 100
    found = redact_text(text)
    assert "hunt" not in found
    assert found.endswith(f"{REDACTED} ({len(text) - LONGEST_LINE + 5} more characters)")


@pytest.mark.parametrize(
    "piece",
    [
        "password",
        "-password",
        "://",
        "a:b@",
        "-----BEGIN A-----",
        "=",
        "sha256:" + "a" * 64,
        "eyJ",
        'user "',
        "Aa1",
        "0",
        "://@",
        "/",
    ],
)
def test_the_time_for_hostile_text_is_linear(piece):
    line = piece * (1 + 4 * LONGEST_LINE // len(piece))
    text = "\n".join([line] * 4)
    begin = time.process_time()
    redact_text(text)
    redact_text(line.replace(" ", "") * 8)
    assert time.process_time() - begin < 2.0


# --- objects ---------------------------------------------------------------------------------------------------------------


def variables(*entries):
    (container,) = redacted({"spec": {"containers": [{"env": list(entries)}]}})["spec"]["containers"]
    return container["env"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("RAY_PORT", "6379", "6379"),
        ("RAY_ADDRESS", "demo-head-svc:6379", "demo-head-svc:6379"),
        ("RAY_ADDRESS", "ray://ada:hunter2@demo:10001", "ray://<redacted>@demo:10001"),
        ("REDIS_PASSWORD", "hunter2", REDACTED),
        ("RAY_REDIS_ADDRESS", "redis://ada:hunter2@redis:6379", REDACTED),
        ("RAY_AUTH_TOKEN", "hunter2", REDACTED),
        ("RAY_RUNTIME_ENV", "hunter2", REDACTED),
        ("KUBERAY_TOKEN", "hunter2", REDACTED),
        ("HOME", "/home/ray", REDACTED),
        ("EMPTY", "", ""),
        (
            "KUBERAY_GEN_RAY_START_CMD",
            "ray start --head --num-cpus=1 --redis-password=hunter2 --port=6379 ",
            "ray start --head --num-cpus=1 <redacted> --port=6379 ",
        ),
        ("PADDLE_TRAINER_ENDPOINTS", "a-0.a:7164,a-1.a:7164", "a-0.a:7164,a-1.a:7164"),
    ],
)
def test_variables_keep_their_value_if_raytide_sets_them(name, value, expected):
    assert variables({"name": name, "value": value}) == [{"name": name, "value": expected}]


def test_references_of_variables_stay():
    entries = [
        {"name": "A", "valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['ray.io/cluster']"}}},
        {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1"}}},
    ]
    assert variables(*entries) == entries


@pytest.mark.parametrize(
    ("given_words", "expected"),
    [
        (["/bin/bash", "-c", "--"], ["/bin/bash", "-c", "--"]),
        (
            ["ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ray start  --block  --num-cpus=1 "],
            ["ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ray start  --block  --num-cpus=1 "],
        ),
        (["ray start --redis-password hunter2 --head"], ["ray start <redacted> <redacted> --head"]),
        (["python", "train.py", "--lr", "0.1"], ["python", REDACTED, REDACTED, REDACTED]),
        (["python -m train --pw=hunter2 && echo done"], ["python -m <redacted> <redacted> && echo <redacted>"]),
        (["-phunter2"], [REDACTED]),
        (["--port=ada:hunter2@x"], ["--port=<redacted>"]),
        ([f"--address={JWT}"], ["--address=<redacted>"]),
        ("python train.py", "python <redacted>"),
        ("echo 'hunter2 is it'", "echo '<redacted> <redacted> <redacted>'"),
        (
            ["operator", "--watch-namespace=a,b", "--log-level=debug", '--tenants={"hunter2":1}'],
            ["operator", "--watch-namespace=a,b", "--log-level=debug", '--tenants=<redacted>"<redacted>"<redacted>'],
        ),
        (7, REDACTED),
    ],
)
def test_commands_keep_the_words_of_ray_start_and_of_raytide(given_words, expected):
    assert redacted({"spec": {"command": given_words}})["spec"]["command"] == expected


def redacted_field(name, value):
    return redacted({"spec": {name: value}})["spec"].get(name)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("image", f"ghcr.io/acme/ray:2.9@{DIGEST}", f"ghcr.io/acme/ray:2.9@{DIGEST}"),
        ("image", "ada:hunter2@ghcr.io/ray", REDACTED),
        ("image", JWT, REDACTED),
        ("imagePullSecrets", [{"name": "registry"}], [{"name": "registry"}]),
        (
            "rayStartParams",
            {"num-cpus": "1", "redis-password": "hunter2"},
            {"num-cpus": "1", "redis-password": REDACTED},
        ),
        ("rayStartParams", {"system-config": "{}", "port": 6379}, {"system-config": REDACTED, "port": 6379}),
        ("envs", {"A": "hunter2", "RAYTIDE_INDEX": "1"}, {"A": REDACTED, "RAYTIDE_INDEX": "1"}),
        (
            "gcsFaultToleranceOptions",
            {"redisAddress": "redis://a:hunter2@redis:6379", "redisPassword": {"value": "hunter2"}},
            {"redisAddress": "redis://<redacted>@redis:6379", "redisPassword": {"value": REDACTED}},
        ),
        (
            "gcsFaultToleranceOptions",
            {"redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "pw"}}}},
            {"redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "pw"}}}},
        ),
        ("httpGet", {"path": "/a?b=c", "port": "http"}, {"path": REDACTED, "port": "http"}),
        ("httpGet", {"httpHeaders": [{"name": "X", "value": "hunter2"}]}, {"httpHeaders": REDACTED}),
        ("volumes", [{"csi": {"volumeAttributes": {"a": "hunter2"}}}], [{"csi": REDACTED}]),
        ("volumes", [{"secret": {"secretName": "a"}}], [{"secret": {"secretName": "a"}}]),
        ("tolerations", [{"key": "gpu", "value": "yes"}], [{"key": "gpu", "value": "yes"}]),
        ("value", "hunter2", REDACTED),
        ("limits", {"cpu": "500m", "memory": "1Gi", "x": "a b"}, {"cpu": "500m", "memory": "1Gi", "x": REDACTED}),
        ("resources", {"CPU": "4", "limits": {"cpu": 1}}, {"CPU": "4", "limits": {"cpu": 1}}),
        ("newField", {"a": 1}, REDACTED),
        ("newField", None, None),
        ("data", {"a": "hunter2"}, None),
        ("managedFields", [{}], None),
        ("terminated", {"exitCode": 1, "message": "hunter2"}, {"exitCode": 1, "message": REDACTED}),
        ("message", "password=hunter2", "password=<redacted>"),
        ("replicas", 3, 3),
        ("suspend", False, False),
        ("containers", "hunter2 it is", REDACTED),
    ],
)
def test_fields(name, value, expected):
    assert redacted_field(name, value) == expected


def annotations(**given_annotations):
    return redacted({"metadata": {"annotations": given_annotations}})["metadata"]["annotations"]


def test_annotations_of_others_lose_their_values_and_the_copy_of_the_object_goes():
    found = annotations(
        **{
            "kubectl.kubernetes.io/last-applied-configuration": '{"a":"hunter2"}',
            "example.com/note": "hunter2",
            constants.FT_ENABLED_ANNOTATION: "true",
            constants.AUTOSCALER_ANNOTATION: "paused",
            constants.ALLOW_INSECURE_ANNOTATION: "authOptions, token: hunter2",
        }
    )
    assert found == {
        "example.com/note": REDACTED,
        constants.FT_ENABLED_ANNOTATION: "true",
        constants.AUTOSCALER_ANNOTATION: "paused",
        constants.ALLOW_INSECURE_ANNOTATION: f"authOptions, token: {REDACTED}",
    }


@pytest.mark.parametrize("text", ["hunter2", '{"a": "hunter2"}', "[" * 100_000])
def test_a_record_that_is_none_is_redacted(text):
    assert annotations(**{constants.AUTOSCALER_DECISION_ANNOTATION: text}) == {
        constants.AUTOSCALER_DECISION_ANNOTATION: REDACTED
    }


def test_a_record_of_the_autoscaler_stays_without_what_others_added():
    why = Diagnosis("MaxReached", 2, "password=hunter2")
    record = DecisionRecord("uid", "head", groups={"cpu": GroupDecision(1, why=(why,))})
    text = json.dumps({**json.loads(encode_record(record)), "added": "hunter3"})
    (found,) = annotations(**{constants.AUTOSCALER_DECISION_ANNOTATION: text}).values()
    assert "MaxReached" in found
    assert "hunter" not in found


def test_depth_is_bounded():
    deep = {"spec": {}}
    for _ in range(200):
        deep = {"spec": deep}
    assert json.dumps(redactor().object(deep)).count("spec") == DEEPEST


def test_equal_values_of_one_bundle_have_equal_marks_that_tell_nothing_elsewhere():
    """So that it can be seen that a variable of the head is not that of a worker."""
    bundle, other = redactor(), Redactor(b"another key")
    marks = [
        each.object({"spec": {"unknown": value}})["spec"]["unknown"] for each in (bundle, other) for value in "aab"
    ]
    assert all(map(MARK.fullmatch, marks))
    assert marks[0] == marks[1]
    assert len(set(marks)) == 4
    assert bundle.object({"spec": {"env": [{"name": "X", "value": "a"}]}})["spec"]["env"][0]["value"] == marks[0]


def test_keys_that_are_no_names_are_redacted():
    assert redacted({"metadata": {"labels": {"a b": "c", JWT: "d", "e": "f"}}})["metadata"]["labels"] == {
        REDACTED: REDACTED,
        "e": "f",
    }


def test_of_a_node_remain_capacity_conditions_taints_and_labels_that_matter():
    node = {
        "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "a", "team": "x", "owner": "ada"}},
        "spec": {"providerID": "aws:///i-1", "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4"}, "addresses": [{"address": "10.0.0.1"}], "images": [{"names": ["x"]}]},
    }
    assert reduced_node(node, {"team"}, redactor()) == {
        "metadata": {
            "name": "n", "creationTimestamp": None, "labels": {"topology.kubernetes.io/zone": "a", "team": "x"},
        },
        "spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "4"}},
    }  # fmt: skip


def test_a_definition_loses_its_schemas():
    spec = {"group": "ray.io", "scope": "Namespaced", "versions": [{"name": "v1", "served": True, "schema": {"a": 1}}]}
    found = reduced_definition({"metadata": {"name": "x"}, "spec": spec}, redactor())
    assert found["spec"]["versions"] == [{"name": "v1", "served": True}]


# --- the lists of what is harmless -------------------------------------------------------------------------------------------


def test_no_listed_name_is_that_of_a_credential():
    suspicious = ("password", "secret", "token", "credential", "passwd", "auth", "key")
    for names in (FLAGS, *ENTRIES.values()):
        assert not [name for name in names if any(part in name.lower() for part in suspicious)]
    assert not (KEPT_FIELDS | FREE_FIELDS) & {
        "data",
        "stringData",
        "value",
        "httpHeaders",
        "options",
        "volumeAttributes",
        "managedFields",
    }


def pods_in(value):
    if isinstance(value, dict):
        if value.get("kind") == "Pod":
            yield value
        else:
            for each in value.values():
                yield from pods_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from pods_in(each)


def test_what_kuberay_itself_sets_in_a_pod_stays():
    (head, *_) = [
        pod
        for pod in pods_in(json.loads((GOLDEN / "01-minimal.json").read_text()))
        if pod["metadata"]["labels"]["ray.io/node-type"] == "head"
    ]
    found = redactor().object(head)
    one, other = head["spec"]["containers"][0], found["spec"]["containers"][0]
    for part in ("name", "image", "args", "command", "env", "ports", "resources"):
        assert other.get(part) == one.get(part)
    assert found["metadata"]["labels"] == head["metadata"]["labels"]


# --- no planted secret is in a bundle --------------------------------------------------------------------------------------

ALPHABET = string.ascii_letters + string.digits + "!#$%()*+-./:;=?@[]^_{}~"
secrets = st.text(ALPHABET, min_size=8, max_size=40).map(lambda text: f"zQ{text}")
"""Anything without spaces, quotation marks and ampersands; it begins with what no other part of a bundle has."""

TEXTS = [
    "password={}", "Password: {}", '"token": "{}"', "--api-key {}", "--client-secret={}", "redis://ada:{}@redis:6379/0", "Bearer {}",
    "authorization: Basic {}", "AWS_SECRET_ACCESS_KEY={}", "passphrase {}", "the password was {}", "X-Api-Key: {}",
    "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----", "MYSQL_PASS={}", "cookie: a={}", "https://x.example/a?sig={}",
]  # fmt: skip


def plant_env(obj, secret):
    obj["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"].append({"name": "MINE", "value": secret})


def plant_redis(obj, secret):
    obj["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"].append(
        {"name": "REDIS_PASSWORD", "value": secret}
    )


def plant_argument(obj, secret):
    obj["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["args"].append(secret)


def plant_option(obj, secret):
    obj["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["args"].append(
        f"ray start --token={secret} --head"
    )


def plant_annotation(obj, secret):
    obj["metadata"]["annotations"]["example.com/x"] = secret


def plant_our_annotation(obj, secret):
    obj["metadata"]["annotations"]["raytide.io/autoscaler-decision"] = json.dumps({"v": 2, "x": secret})


def plant_last_applied(obj, secret):
    obj["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = json.dumps({"a": secret})


def plant_template_annotation(obj, secret):
    obj["spec"]["headGroupSpec"]["template"]["metadata"] = {"annotations": {"x": secret}}


def plant_start_param(obj, secret):
    obj["spec"]["headGroupSpec"]["rayStartParams"]["redis-password"] = secret


def plant_redis_option(obj, secret):
    obj["spec"]["gcsFaultToleranceOptions"] = {
        "redisAddress": f"redis://:{secret}@redis:6379",
        "redisPassword": {"value": secret},
        "redisUsername": {"value": secret},
    }


def plant_unknown(obj, secret):
    obj["spec"]["unknown"] = {"deep": [secret]}


def plant_header(obj, secret):
    probe = {"httpGet": {"path": f"/x?{secret}", "port": 1, "httpHeaders": [{"name": "a", "value": secret}]}}
    obj["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["livenessProbe"] = probe


def plant_volume(obj, secret):
    volumes = [
        {"name": "a", "csi": {"volumeAttributes": {"a": secret}}},
        {"name": "b", "flexVolume": {"options": {"b": secret}}},
    ]
    obj["spec"]["headGroupSpec"]["template"]["spec"]["volumes"] = volumes


def plant_termination(obj, secret):
    obj["status"] = {"containerStatuses": [{"state": {"terminated": {"message": secret}}}]}


def plant_data(obj, secret):
    obj["data"] = {"a": secret}
    obj["stringData"] = {"a": secret}
    obj["metadata"]["managedFields"] = [{"manager": secret}]


PLANTS = [value for name, value in sorted(globals().items()) if name.startswith("plant_")]

CLUSTER = {
    "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "demo", "namespace": "team", "annotations": {}},
    "spec": {
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0"},
            "template": {"spec": {"containers": [{"name": "ray-head", "image": "ray:2.52", "args": [], "env": []}]}},
        }
    },
}  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(PLANTS), secrets), max_size=6),
    st.lists(st.tuples(st.sampled_from(TEXTS), secrets), max_size=6),
)
def test_no_planted_secret_is_in_the_bytes_of_a_bundle(planted, spoken):
    obj = deepcopy(CLUSTER)
    for plant, secret in planted:
        plant(obj, secret)
    lines = [form.format(secret) for form, secret in spoken]
    obj.setdefault("status", {})["conditions"] = [{"type": "Ready", "message": line} for line in lines]
    shown, bundle = redactor(), Bundle(datetime(2026, 1, 1, tzinfo=UTC))
    bundle.add_json("object.json", shown.object(obj))
    bundle.add_json("why.json", shown.texts({"summary": "; ".join(lines)}))
    bundle.add_text("autoscaler.log", shown.text("\n".join(lines)))
    bundle.finish("RayCluster demo", shown.counts)
    content = gzip.decompress(bundle.archive("x")).decode()
    assert "ray:2.52" in content
    for secret in [secret for _, secret in (*planted, *spoken)]:
        assert secret not in content
        assert secret[:8] not in content
