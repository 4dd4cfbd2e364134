"""The report of `make golden`, and which differences it accepts."""

import copy
import json

import pytest

from golden import compare as golden
from support.golden_differences import compare
from support.golden_live import Captured, read_documents
from support.golden_records import GOLDEN, read_record

REFERENCE = GOLDEN / "kuberay"


def captured(file, *changes, unsupported="", name=""):
    """As if ours were KubeRay's recording, but for the changes."""
    record = {**copy.deepcopy(read_record(file)), "file": name or file}
    for change in changes:
        change(record)
    conditions = [{"type": "Unsupported", "message": unsupported}] if unsupported else []
    clusters = [{"status": {"conditions": conditions}}]
    return Captured(record, clusters, read_documents(GOLDEN / "specs" / f"{file}.yaml"))


def without_container(name):
    def change(record):
        containers = record["objects"]["Pod head/headgroup/0"]["spec"]["containers"]
        containers[:] = [each for each in containers if each["name"] != name]

    return change


def without_object(key):
    return lambda record: record["objects"].pop(key)


def with_desired_cpu(amount):
    return lambda record: next(iter(record["status"].values())).update(desiredCPU=amount)


def rejected_with(error):
    def change(record):
        record["applied"][-1][2:] = [1, error]
        record |= {"objects": {}, "status": {}, "finalizers": {}, "events": []}

    return change


def test_an_identical_file_is_counted_as_that(capsys):
    assert golden.report({"01-minimal": captured("01-minimal")}, REFERENCE) == 0
    assert "files identical: 1 · with listed differences: 0 · with unlisted ones: 0" in capsys.readouterr().out


def test_an_unlisted_difference_is_shown_with_both_sides_and_fails(capsys):
    assert golden.report({"01-minimal": captured("01-minimal", with_desired_cpu("7"))}, REFERENCE) == 1
    output = capsys.readouterr().out
    assert "UNLISTED   01-minimal" in output
    assert '    reference "3"' in output
    assert '    ours      "7"' in output
    assert "with unlisted ones: 1" in output


def test_a_listed_difference_is_shown_with_its_reason_and_passes(capsys):
    ours = captured(
        "16-ingress",
        without_object("Ingress with-ingress-head-ingress"),
        unsupported="spec.headGroupSpec.enableIngress: no Ingress is created",
    )
    assert golden.report({"16-ingress": ours}, REFERENCE) == 0
    assert "1 × not built yet: ingress" in capsys.readouterr().out


@pytest.mark.rule("FD:RC-B20")
@pytest.mark.parametrize(("ready", "is_meant"), [(0, True), (2, False)])
def test_not_provisioned_is_meant_where_kuberays_cluster_lacked_workers(ready, is_meant):
    def change(status):
        return lambda record: next(iter(record["status"].values())).update(status)

    def unprovisioned(record):
        (status,) = record["status"].values()
        for each in status["conditions"]:
            if each["type"] == "RayClusterProvisioned":
                each |= {"status": "False", "reason": "RayClusterPodsProvisioning"}

    recorded = captured("01-minimal", change({"readyWorkerReplicas": ready})).record
    ours = captured("01-minimal", change({"readyWorkerReplicas": ready}), unprovisioned)
    found = compare(ours.fate_beside(recorded))
    assert {each.place for each in found} == {
        "status conditions.RayClusterProvisioned.status",
        "status conditions.RayClusterProvisioned.reason",
    }
    assert all(bool(each.reason) == is_meant for each in found)


def test_an_autoscaler_that_is_missing_is_no_difference_that_is_meant(capsys):
    ours = captured("03-autoscaling-default", without_container("autoscaler"))
    assert golden.report({"03-autoscaling-default": ours}, REFERENCE) == 1
    assert "containers.autoscaler" in capsys.readouterr().out


def test_a_file_without_a_recording_fails_with_the_expected_path(tmp_path, capsys):
    assert golden.report({"01-minimal": captured("01-minimal")}, tmp_path) == 1
    assert str(tmp_path / "01-minimal.json") in capsys.readouterr().out


def test_a_folder_without_files_is_reported(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["golden", "--specs", str(tmp_path)])
    assert golden.main() == 2
    assert str(tmp_path) in capsys.readouterr().out


@pytest.mark.rule("FD:REL-9")
@pytest.mark.parametrize(("is_steady", "code"), [(True, 0), (False, 1)])
def test_clusters_that_still_changed_when_they_were_recorded_fail(is_steady, code, capsys, monkeypatch):
    async def capture(_files, _mode):
        return {"01-minimal": captured("01-minimal")}, is_steady

    monkeypatch.setattr("sys.argv", ["golden"])
    monkeypatch.setattr(golden, "capture_on_own_plane", capture)
    assert golden.main() == code
    assert ("still changed" in capsys.readouterr().out) is not is_steady


def test_records_are_written_in_the_format_they_are_compared_in(tmp_path):
    golden.write_records(tmp_path, {"01-minimal": captured("01-minimal")})
    assert json.loads((tmp_path / "01-minimal.json").read_text()) == read_record("01-minimal")


@pytest.mark.parametrize(
    ("file", "error", "is_meant"),
    [
        ("35-invalid-min-above-max", "spec.workerGroupSpecs[0].minReplicas: must not be above", True),
        ("35-invalid-min-above-max", "spec.rayVersion: must not be blue", False),
        ("34-invalid-duplicate-groups", '.spec.workerGroupSpecs: duplicate entries for key [groupName="x"]', True),
        ("35-invalid-min-above-max", "connection refused", False),
        ("01-minimal", "spec.rayVersion: must not be blue", False),
    ],
)
def test_a_rejection_is_meant_when_kuberay_finds_the_file_invalid_and_ours_names_the_field(file, error, is_meant):
    found = compare(captured(file, rejected_with(error)).fate_beside(read_record(file)))
    assert found
    assert all(difference.reason for difference in found) == is_meant


def test_reasons_apply_to_files_that_were_not_recorded(tmp_path):
    text = (GOLDEN / "specs" / "07-multi-host.yaml").read_text().replace("slice", "pod-slice")
    (tmp_path / "unseen.yaml").write_text(text.replace("name: ray-head", "name: my-ray"))
    recorded = json.loads(json.dumps(read_record("07-multi-host")).replace("slice", "pod-slice"))
    ours = copy.deepcopy(recorded)
    for key in ("pod-slice/0", "pod-slice/1", "single/0"):
        metadata = ours["objects"][f"Pod worker/{key}"]["metadata"]
        metadata["annotations"] = {"raytide.io/num-of-hosts": "4"} | ({"a": "b"} if key.endswith("1") else {})
    fate = Captured(ours, captured("07-multi-host").clusters, read_documents(tmp_path / "unseen.yaml"))
    found = {difference.place: bool(difference.reason) for difference in compare(fate.fate_beside(recorded))}
    assert found == {
        "Pod worker/pod-slice/0.metadata.annotations": True,
        "Pod worker/pod-slice/1.metadata.annotations": False,  # has a further annotation
        "Pod worker/single/0.metadata.annotations": False,  # is no host
    }
