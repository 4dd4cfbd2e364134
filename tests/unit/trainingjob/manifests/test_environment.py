"""Variables of the containers of a TrainingJob: Paddle's old and new names, torchrun's, and the user's."""

from typing import Any

import pytest

from raytide.api.config import JobConfig
from raytide.api.trainingjob_pods import Size
from raytide.trainingjob.manifests.objects import build_pod
from support.training_builders import parsed_job

DOMAIN = "demo.default.svc.cluster.local"
PET = {
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_RDZV_BACKEND",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID",
    "PET_RDZV_CONF",
    "PET_MAX_RESTARTS",
}


def env_of(
    role: str = "trainer", index: int = 0, *, size: Size | None = None, config: JobConfig | None = None, **spec: Any
) -> dict[str, str]:
    """Name -> value, or the path of the field, of the main container."""
    job = parsed_job(**{"pserver": {"min-instance": 2}, **spec})
    pod = build_pod(job, role, index, size or Size(2, 2), config or JobConfig())
    variables = pod["spec"]["containers"][0]["env"]
    found = {
        variable["name"]: variable["valueFrom"]["fieldRef"]["fieldPath"]
        if "valueFrom" in variable
        else variable["value"]
        for variable in variables
    }
    assert len(found) == len(variables), "a name is there twice"
    return found


# --- Paddle's old names ----------------------------------------------------------------------------------------------
@pytest.mark.rule("TJ:2.2")
@pytest.mark.parametrize("role", ["master", "pserver", "trainer"])
@pytest.mark.parametrize(
    ("variable", "expected"),
    [
        ("PADDLE_JOB_NAME", "demo"),
        ("TRAINERS", "3"),
        ("PSERVERS", "2"),
        ("ENTRY", "python a.py"),
        ("TOPOLOGY", "python a.py"),
        ("TRAINER_PACKAGE", "/work"),
        ("PADDLE_INIT_PORT", "7164"),
        ("PADDLE_INIT_TRAINER_COUNT", "1"),
        ("PADDLE_INIT_PORTS_NUM", "1"),
        ("PADDLE_INIT_PORTS_NUM_FOR_SPARSE", "1"),
        ("PADDLE_INIT_NUM_GRADIENT_SERVERS", "3"),
        ("PADDLE_INIT_NUM_PASSES", "1"),
        ("PADDLE_INIT_USE_GPU", "0"),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64"),
        ("NAMESPACE", "metadata.namespace"),
        ("POD_IP", "status.podIP"),
        ("POD_NAME", "metadata.name"),
    ],
)
def test_the_launcher_finds_upstreams_variables_in_every_role(role, variable, expected):
    trainer = {"entrypoint": "python a.py", "workspace": "/work"}
    assert env_of(role, master={}, trainer=trainer, size=Size(3, 2))[variable] == expected


@pytest.mark.rule("TJ:2.2")
@pytest.mark.parametrize(
    ("resources", "count", "uses_gpu"),
    [
        pytest.param({"requests": {"cpu": "1"}}, "1", "0", id="one CPU is one thread"),
        pytest.param({"requests": {"cpu": "2500m"}}, "3", "0", id="CPUs are rounded up"),
        pytest.param({"limits": {"cpu": "4"}}, "4", "0", id="a limit is a request where there is no other"),
        pytest.param({"requests": {"memory": "1Gi"}}, "1", "0", id="at least one"),
        pytest.param({"requests": {"cpu": "nonsense"}}, "1", "0", id="one where nothing can be read"),
        pytest.param({"limits": {"nvidia.com/gpu": 2}, "requests": {"cpu": "8"}}, "2", "1", id="GPUs come first"),
        pytest.param({"limits": {"alpha.kubernetes.io/nvidia-gpu": 1}}, "1", "1", id="under their old name too"),
        pytest.param({"requests": {"nvidia.com/gpu": "4"}}, "4", "1", id="also where only a request is written"),
        pytest.param({"limits": {"example.com/gpu": 4}, "requests": {"cpu": "1"}}, "1", "0", id="an unknown resource"),
    ],
)
def test_threads_of_a_trainer_are_its_gpus_or_its_cpus(resources, count, uses_gpu):
    found = env_of(trainer={"resources": resources})
    assert (found["PADDLE_INIT_TRAINER_COUNT"], found["PADDLE_INIT_USE_GPU"]) == (count, uses_gpu)


@pytest.mark.rule("TJ:3-18")
def test_the_configuration_determines_which_resources_are_gpus():
    config = JobConfig(gpus=frozenset({"example.com/gpu"}))
    found = env_of(trainer={"resources": {"limits": {"example.com/gpu": 4}}}, config=config)
    assert (found["PADDLE_INIT_TRAINER_COUNT"], found["PADDLE_INIT_USE_GPU"]) == ("4", "1")


# --- Paddle's new names ----------------------------------------------------------------------------------------------
FLEET: dict[str, str] = {
    "PADDLE_PORT": "7164",
    "PADDLE_CURRENT_ENDPOINT": "$(POD_IP):7164",
    "PADDLE_TRAINERS_NUM": "3",
    "PADDLE_WITH_GLOO": "0",
}


@pytest.mark.rule("TJ:2.8", "TJ:7-7")
@pytest.mark.parametrize("framework", ["paddle", "generic"])
def test_the_environment_of_a_trainer_has_rank_servers_and_peers(framework):
    found = env_of("trainer", 1, framework=framework, size=Size(3, 2))
    assert FLEET.items() <= found.items()
    assert (found["TRAINING_ROLE"], found["PADDLE_TRAINER_ID"]) == ("TRAINER", "1")
    assert found["PADDLE_PSERVERS_IP_PORT_LIST"].split(",") == [f"demo-pserver-{i}.{DOMAIN}:7164" for i in range(2)]
    assert found["PADDLE_TRAINER_ENDPOINTS"].split(",") == [
        f"demo-trainer-0.{DOMAIN}:7164",
        "$(POD_IP):7164",
        f"demo-trainer-2.{DOMAIN}:7164",
    ]


@pytest.mark.rule("TJ:2.8")
@pytest.mark.parametrize("framework", ["paddle", "generic"])
def test_a_pserver_finds_itself_in_the_list_by_its_address(framework):
    found = env_of("pserver", 1, framework=framework, size=Size(3, 2))
    assert FLEET.items() <= found.items()
    assert found["TRAINING_ROLE"] == "PSERVER"
    servers = found["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
    # What Paddle does: POD_IP and PADDLE_PORT, joined, have to be one of the entries.
    assert servers.index(f"$(POD_IP):{found['PADDLE_PORT']}") == 1
    assert servers[0] == f"demo-pserver-0.{DOMAIN}:7164"
    assert not {"PADDLE_TRAINER_ID", "PADDLE_TRAINER_ENDPOINTS"} & found.keys()


@pytest.mark.parametrize("role", ["trainer", "pserver"])
def test_an_address_variable_precedes_those_that_refer_to_it(role):
    found = list(env_of(role))
    assert found.index("POD_IP") < min(found.index(name) for name in found if name.startswith("PADDLE_"))


@pytest.mark.rule("TJ:7-5")
def test_ranks_are_positions_among_the_trainers_there_are():
    found = env_of("trainer", 5, size=Size(3, 2, (0, 2, 5)))
    assert found["PADDLE_TRAINER_ID"] == "2"
    endpoints = found["PADDLE_TRAINER_ENDPOINTS"].split(",")
    assert endpoints == [f"demo-trainer-0.{DOMAIN}:7164", f"demo-trainer-2.{DOMAIN}:7164", "$(POD_IP):7164"]
    assert found["RAYTIDE_INDEX"] == "5"


def test_a_list_too_long_for_linux_is_left_to_the_files():
    found = env_of(high=5000, size=Size(5000, 2))
    assert "PADDLE_TRAINER_ENDPOINTS" not in found
    assert (found["PADDLE_TRAINERS_NUM"], found["PADDLE_TRAINER_ID"]) == ("5000", "0")
    assert max(len(value) for value in found.values()) < 128 * 1024
    assert env_of(high=1000, size=Size(1000, 2))["PADDLE_TRAINER_ENDPOINTS"].count(",") == 999


def test_without_parameter_servers_fleet_is_collective():
    assert "PADDLE_PSERVERS_IP_PORT_LIST" not in env_of(size=Size(2, 0), pserver=None)


@pytest.mark.parametrize(
    ("framework", "has_old", "has_new", "has_torchrun"),
    [("paddle", True, True, False), ("generic", False, True, False), ("torchrun", False, False, True)],
)
def test_each_framework_finds_its_own_names_and_no_others(framework, has_old, has_new, has_torchrun):
    found = env_of(framework=framework)
    assert ("PADDLE_INIT_PORT" in found) == has_old
    assert ("LD_LIBRARY_PATH" in found) == has_old
    assert ("PADDLE_TRAINER_ID" in found) == has_new
    assert (found.keys() >= PET) == has_torchrun


# --- torchrun --------------------------------------------------------------------------------------------------------
@pytest.mark.rule("TJ:7-7")
def test_torchrun_meets_at_the_first_trainer():
    found = env_of("trainer", 1, framework="torchrun", low=2, high=6)
    assert {name: value for name, value in found.items() if name.startswith("PET_")} == {
        "PET_NNODES": "2:6",
        "PET_NPROC_PER_NODE": "1",
        "PET_NODE_RANK": "1",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"demo-trainer-0.{DOMAIN}:7164",
        "PET_RDZV_ID": "uid-job",
        "PET_RDZV_CONF": "is_host=false",
        "PET_MAX_RESTARTS": "6",
    }
    first = env_of("trainer", 0, framework="torchrun")
    assert (first["PET_RDZV_ENDPOINT"], first["PET_RDZV_CONF"]) == ("$(POD_IP):7164", "is_host=true")


@pytest.mark.parametrize(
    ("spec", "variable", "expected"),
    [
        pytest.param({"low": 3, "high": 3}, "PET_NNODES", "3:3", id="a fixed job has one size"),
        pytest.param(
            {"trainer": {"resources": {"limits": {"nvidia.com/gpu": 4}}}}, "PET_NPROC_PER_NODE", "4", id="one per GPU"
        ),
        pytest.param({"restartPolicy": "Never"}, "PET_MAX_RESTARTS", "0", id="no restarts where none are wanted"),
        pytest.param({"backoffLimit": 2}, "PET_MAX_RESTARTS", "2", id="as many as pods would get"),
        pytest.param({"port": 29400}, "PET_RDZV_ENDPOINT", "$(POD_IP):29400", id="at the job's port"),
    ],
)
def test_torchruns_options_follow_the_job(spec, variable, expected):
    assert env_of(framework="torchrun", **spec)[variable] == expected


@pytest.mark.parametrize("role", ["master", "pserver"])
def test_only_trainers_are_torchruns(role):
    assert not PET & env_of(role, framework="torchrun", master={}).keys()


# --- ours and the user's ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("role", "spec", "endpoint"),
    [
        pytest.param("trainer", {"master": {}}, f"demo-master.{DOMAIN}:8080", id="by name"),
        pytest.param("pserver", {"fault_tolerant": True}, f"demo-master.{DOMAIN}:8080", id="also a default one"),
        pytest.param("master", {"master": {}}, "$(POD_IP):8080", id="the master itself by address"),
        pytest.param("trainer", {}, None, id="not where there is none"),
    ],
)
def test_where_the_master_is(role, spec, endpoint):
    assert env_of(role, **spec).get("RAYTIDE_MASTER_ENDPOINT") == endpoint


@pytest.mark.parametrize(("role", "expected"), [("trainer", True), ("pserver", True), ("master", False)])
def test_where_the_live_files_are(role, expected):
    assert (env_of(role, master={}).get("RAYTIDE_MEMBERSHIP_DIR") == "/etc/raytide/membership") is expected


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize(
    ("trainer", "variable", "expected"),
    [
        pytest.param({"envs": {"A": "1"}}, "A", "1", id="upstream's map"),
        pytest.param({"env": [{"name": "A", "value": "2"}]}, "A", "2", id="Kubernetes' list"),
        pytest.param(
            {"envs": {"A": "1"}, "env": [{"name": "A", "value": "2"}]}, "A", "2", id="the list takes precedence"
        ),
        pytest.param(
            {"envs": {"LD_LIBRARY_PATH": "/lib"}}, "LD_LIBRARY_PATH", "/lib", id="the user's replaces the default"
        ),
        pytest.param(
            {"env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]},
            "POD_IP",
            "status.hostIP",
            id="a field too",
        ),
    ],
)
def test_the_users_variables_win(trainer, variable, expected):
    assert env_of(trainer=trainer)[variable] == expected


def test_a_variable_that_is_replaced_keeps_its_place():
    assert list(env_of(trainer={"envs": {"POD_IP": "10.0.0.1"}})).index("POD_IP") == list(env_of()).index("POD_IP")


def test_a_roles_variables_are_its_own():
    spec = {"trainer": {"envs": {"A": "1"}}}
    assert "A" in env_of("trainer", **spec)
    assert "A" not in env_of("pserver", **spec)


@pytest.mark.rule("FD:RC3-1")
def test_the_address_of_a_pod_that_has_ipv6_has_brackets_before_a_port():
    config = JobConfig(is_ipv6=True)
    torch = env_of(framework="torchrun", config=config)
    assert torch["PET_RDZV_ENDPOINT"] == "[$(POD_IP)]:7164"
    assert env_of("master", master={}, config=config)["RAYTIDE_MASTER_ENDPOINT"] == "[$(POD_IP)]:8080"
    assert env_of(config=config)["PADDLE_CURRENT_ENDPOINT"] == "$(POD_IP):7164", "as Paddle joins them"
