"""The names of the package, arguments of the client's classes, and what it shows in notebooks."""

import subprocess
import sys

import pytest

import raytide
from raytide.client.outcome import Status, WaitTimeoutError


def status(**fields):
    values = {"kind": "RayCluster", "namespace": "ns", "name": "demo", "phase": "ready", "wanted": 4, "ready": 1}
    values |= {"is_ready": False, "is_finished": False, "reason": "", "message": ""}
    return Status(**{**values, **fields})


def test_the_client_is_loaded_when_it_is_used():
    program = "import raytide, sys; a = 'raytide.client' in sys.modules; raytide.RayCluster; print(a, 'raytide.client.blocking' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        == "False True\n"
    )


def test_every_public_name_exists_and_others_are_attribute_errors():
    assert all(getattr(raytide, name) for name in raytide.__all__)
    assert set(raytide.__all__) <= set(dir(raytide))
    with pytest.raises(AttributeError, match="RayJob"):
        raytide.RayJob  # noqa: B018


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        pytest.param(lambda: raytide.RayCluster("a", workers=1, manifest={}), ValueError, "not both", id="both"),
        pytest.param(
            lambda: raytide.RayCluster("a", cpus=1),
            TypeError,
            "cpus describe a cluster: give workers too",
            id="no workers",
        ),
        pytest.param(
            lambda: raytide.TrainingJob("a", gpus=1),
            TypeError,
            "gpus describe a job: give trainers too",
            id="no trainers",
        ),
        pytest.param(lambda: raytide.RayCluster("A b"), ValueError, "'A b' is not a name in Kubernetes", id="no name"),
        pytest.param(
            lambda: raytide.RayCluster("a", namespace="../x"), ValueError, "namespace '../x'", id="no namespace"
        ),
    ],
)
def test_arguments_that_do_not_go_together_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_cluster_that_never_finishes_is_not_waited_for():
    with pytest.raises(ValueError, match="a RayCluster does not finish: wait until it is ready or deleted"):
        raytide.RayCluster("a").wait(until="finished")


def test_a_workload_without_a_manifest_is_not_applied():
    with pytest.raises(raytide.WorkloadError, match=r"RayCluster\('a'\) has no manifest: give workers or a manifest"):
        raytide.RayCluster("a").apply()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("kind: Pod\n", "has 0 objects of kind RayCluster", id="another kind"),
        pytest.param("kind: RayCluster\n---\nkind: RayCluster\n", "has 2 objects", id="two"),
    ],
)
def test_a_file_has_one_object(tmp_path, text, words):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ValueError, match=words):
        raytide.RayCluster.from_yaml(tmp_path / "a.yaml")


def test_a_file_gives_name_namespace_and_manifest(tmp_path):
    (tmp_path / "a.yaml").write_text("kind: ConfigMap\n---\nkind: TrainingJob\nmetadata: {name: a, namespace: b}\n")
    job = raytide.TrainingJob.from_yaml(tmp_path / "a.yaml", context="prod")
    assert (job.name, job.namespace, job.manifest["kind"]) == ("a", "b", "TrainingJob")
    assert repr(job) == "TrainingJob('a', namespace='b')"


def test_a_kubeconfig_that_does_not_exist_is_a_workload_error(tmp_path):
    with pytest.raises(raytide.WorkloadError, match=r"RayCluster a: .*gone"):
        raytide.RayCluster("a", kubeconfig=tmp_path / "gone").status()


def test_a_time_out_is_both_errors():
    assert issubclass(WaitTimeoutError, TimeoutError)
    assert issubclass(WaitTimeoutError, raytide.WorkloadError)


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "RayCluster ns/demo: 1 of 4 ready, ready"),
        (
            {"phase": "", "reason": "MaxReached", "message": "full"},
            "RayCluster ns/demo: 1 of 4 ready, no status yet, MaxReached: full",
        ),
    ],
)
def test_a_status_is_one_line(fields, line):
    assert str(status(**fields)) == line


def test_names_and_messages_are_escaped_in_notebooks():
    shown = status(name="<script>", reason="a&b", message="<img>")._repr_html_()
    assert "<script>" not in shown
    assert "<img>" not in shown
    assert "width:25%" in shown
    assert "width:100%" in status(wanted=0, ready=0)._repr_html_()
