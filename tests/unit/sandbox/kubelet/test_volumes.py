"""Files in volumes, their mounts, and their updates."""

import base64
from pathlib import Path

import pytest

from raytide_sandbox.kubelet.env import ConfigMissingError, NodeFigures, PodSurroundings
from raytide_sandbox.kubelet.podspec import PodSpecError, read_pod
from raytide_sandbox.kubelet.volumefiles import ensure_mount_source, volume_paths, write_files, write_volumes
from raytide_sandbox.kubelet.volumes import (
    EmptyVolume,
    FileContent,
    FilesVolume,
    HostVolume,
    TokenRequest,
    bound_volumes,
    memory_volumes,
    plan_mounts,
    plan_volumes,
    token_requests,
    volume_references,
)
from support.kubelet_fakes import build_pod

AROUND = PodSurroundings(
    pod_ip="", node=NodeFigures(host_ip="1.1.1.1", allocatable={}), service_host="1.1.1.1", service_port=443
)
SOURCES = {
    ("configmap", "settings"): {"data": {"a": "1", "b": "2"}, "binaryData": {"bin": base64.b64encode(b"\0").decode()}},
    ("secret", "keys"): {"data": {"k": base64.b64encode(b"hush").decode()}},
    ("persistentvolumeclaim", "data"): {"spec": {"volumeName": "pv-1"}},
    ("persistentvolumeclaim", "pending"): {"spec": {}},
    ("persistentvolumeclaim", "remote"): {"spec": {"volumeName": "pv-2"}},
    ("persistentvolume", "pv-1"): {"spec": {"hostPath": {"path": "/v/1", "type": "DirectoryOrCreate"}}},
    ("persistentvolume", "pv-2"): {"spec": {"nfs": {"server": "s"}}},
}
TOKEN = TokenRequest(audience="", lifetime_s=3607)


def plan(volume, **pod):
    return plan_volumes(read_pod(build_pod(volumes=[{"name": "v", **volume}], **pod)), AROUND, SOURCES, {TOKEN: "tok"})[
        0
    ]


def contents(volume, **pod):
    return {name: file.content for name, file in plan(volume, **pod).files.items()}


def test_a_config_map_is_one_file_per_key():
    assert contents({"configMap": {"name": "settings"}}) == {"a": b"1", "b": b"2", "bin": b"\0"}


def test_items_choose_and_rename_and_set_modes():
    items = [{"key": "a", "path": "deep/x", "mode": 0o600}]
    assert plan({"configMap": {"name": "settings", "items": items, "defaultMode": 0o400}}).files == {
        "deep/x": FileContent(b"1", 0o600)
    }


def test_a_secret_is_decoded_and_takes_the_default_mode():
    assert plan({"secret": {"secretName": "keys", "defaultMode": 0o400}}).files == {"k": FileContent(b"hush", 0o400)}


def test_a_projection_joins_token_config_map_and_labels():
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "settings", "items": [{"key": "a", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    volume = {"projected": {"sources": sources}}
    labels = {"b": 'say "hi"', "a": "1"}
    assert contents(volume, metadata={"labels": labels}) == {
        "token": b"tok",
        "ca.crt": b"1",
        "labels": b'a="1"\nb="say \\"hi\\""',
    }
    pod = read_pod(build_pod(volumes=[{"name": "v", **volume}]))
    assert token_requests(pod) == {TOKEN}
    assert volume_references(pod) == {("configmap", "settings")}


def test_an_empty_dir_may_be_memory_with_a_size(tmp_path):
    volume = plan({"emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}})
    assert volume == EmptyVolume(name="v", is_memory=True, size_bytes=2**31)
    (memory,) = memory_volumes((volume,), volume_paths([volume], tmp_path))
    assert (memory.path, memory.size_bytes) == (tmp_path / "v", 2**31)


@pytest.mark.parametrize(
    ("volume", "error", "message"),
    [
        pytest.param({"configMap": {"name": "none"}}, ConfigMissingError, 'configmap "none" not found', id="not there"),
        pytest.param({"secret": {"secretName": "none"}}, ConfigMissingError, 'secret "none" not found', id="no secret"),
        pytest.param(
            {"configMap": {"name": "settings", "items": [{"key": "z", "path": "z"}]}},
            ConfigMissingError,
            "non-existent config key: z",
            id="no such key",
        ),
        pytest.param({"nfs": {"server": "x"}}, PodSpecError, "nfs is not available here", id="a kind we do not have"),
        pytest.param(
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "../a"}]}},
            PodSpecError,
            "not a path inside a volume",
            id="a path that leaves the volume",
        ),
        pytest.param({"emptyDir": {"sizeLimit": "big"}}, PodSpecError, "sizeLimit", id="a size that is none"),
    ],
)
def test_what_cannot_be_is_named(volume, error, message):
    with pytest.raises(error) as caught:
        plan(volume)
    assert message in str(caught.value)


@pytest.mark.parametrize("volume", [{"configMap": {"name": "none"}}, {"secret": {"secretName": "none"}}])
def test_what_is_optional_and_missing_is_empty(volume):
    (kind,) = volume
    assert contents({kind: {**volume[kind], "optional": True}}) == {}


# --- mounts ------------------------------------------------------------------------------------------------------------
def mounts(*volume_mounts, environment=None):
    spec = read_pod(build_pod({"name": "c", "volumeMounts": list(volume_mounts)})).containers[0]
    return plan_mounts(spec, {"v": Path("/host/v")}, environment or {})


def test_a_claim_is_the_directory_of_its_volume_for_any_user(tmp_path):
    pod = read_pod(build_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]))
    assert volume_references(pod) == {("persistentvolumeclaim", "data")}
    assert bound_volumes(SOURCES) == {("persistentvolume", "pv-1"), ("persistentvolume", "pv-2")}
    volume = plan({"persistentVolumeClaim": {"claimName": "data"}})
    assert volume == HostVolume(name="v", path="/v/1", type="DirectoryOrCreate", mode=0o777)
    place = tmp_path / "new"
    write_volumes([HostVolume(name="v", path=str(place), type="DirectoryOrCreate", mode=0o777)], tmp_path)
    assert place.stat().st_mode & 0o777 == 0o777


@pytest.mark.parametrize(
    ("claim", "error", "message"),
    [
        ("gone", ConfigMissingError, 'persistentvolumeclaim "gone" not found'),
        ("pending", ConfigMissingError, "is not bound"),
        ("remote", PodSpecError, "the volume of claim remote is not available here"),
    ],
)
def test_a_claim_without_a_directory_here_is_named(claim, error, message):
    with pytest.raises(error, match=message):
        plan({"persistentVolumeClaim": {"claimName": claim}})


def test_a_mount_may_show_only_a_part_and_only_for_reading():
    (mount,) = mounts({"name": "v", "mountPath": "data", "subPath": "a/b", "readOnly": True})
    assert (str(mount.source), mount.target, mount.is_read_only) == ("/host/v/a/b", "/data", True)


def test_a_part_may_be_named_by_the_environment():
    (mount,) = mounts({"name": "v", "mountPath": "/x", "subPathExpr": "$(POD)"}, environment={"POD": "p-1"})
    assert str(mount.source) == "/host/v/p-1"


@pytest.mark.parametrize(
    "mount",
    [
        pytest.param({"name": "other", "mountPath": "/x"}, id="a volume that is not there"),
        pytest.param({"name": "v"}, id="nowhere"),
        pytest.param({"name": "v", "mountPath": "/x", "subPath": "../../etc"}, id="a part outside"),
        pytest.param({"name": "v", "mountPath": "/x", "subPath": "/etc"}, id="an absolute part"),
    ],
)
def test_a_bad_mount_is_rejected(mount):
    with pytest.raises(PodSpecError):
        mounts(mount)


# --- on this machine ---------------------------------------------------------------------------------------------------
def test_files_are_written_with_their_modes_and_replaced_together(tmp_path):
    assert write_files({"a": FileContent(b"1"), "deep/b": FileContent(b"2", 0o600)}, tmp_path)
    assert (tmp_path / "a").read_bytes() == b"1"
    assert (tmp_path / "deep/b").stat().st_mode & 0o777 == 0o600
    before = (tmp_path / "..data").resolve()
    assert write_files({"a": FileContent(b"new")}, tmp_path)
    assert (tmp_path / "a").read_bytes() == b"new"
    assert not (tmp_path / "deep").exists()
    assert not before.exists()


def test_equal_files_are_not_written_again(tmp_path):
    files = {"a": FileContent(b"1")}
    write_files(files, tmp_path)
    assert write_files(files, tmp_path) is False


def test_an_empty_volume_of_files_is_an_empty_directory(tmp_path):
    write_volumes([FilesVolume(name="v")], tmp_path)
    assert [entry.name for entry in (tmp_path / "v").iterdir() if not entry.name.startswith("..")] == []


def test_a_part_that_is_not_there_is_made_and_a_file_is_followed(tmp_path):
    assert ensure_mount_source(tmp_path / "new").is_dir()
    write_files({"a": FileContent(b"1")}, tmp_path)
    assert not ensure_mount_source(tmp_path / "a").is_symlink()


@pytest.mark.parametrize(
    ("kind", "is_there"),
    [
        pytest.param("DirectoryOrCreate", True, id="created on request"),
        pytest.param("", True, id="created by default"),
        pytest.param("Directory", False, id="rejected when it must be there"),
        pytest.param("Socket", False, id="rejected when it is something else"),
    ],
)
def test_a_host_path_is(kind, is_there, tmp_path):
    volume = plan({"hostPath": {"path": str(tmp_path / "h"), "type": kind}})
    if is_there:
        write_volumes([volume], tmp_path)
        assert (tmp_path / "h").is_dir()
    else:
        with pytest.raises(PodSpecError):
            write_volumes([volume], tmp_path)
