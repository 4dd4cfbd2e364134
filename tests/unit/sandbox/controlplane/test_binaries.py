"""The search for control plane binaries, and the error message if there are none."""

import pytest

from raytide_sandbox.controlplane.binaries import check_parts, find_binary, pointer, program
from raytide_sandbox.controlplane.component import ControlPlaneError
from raytide_sandbox.controlplane.flags import PARTS


@pytest.fixture
def programs(tmp_path):
    def make(*names):
        folder = tmp_path / "assets"
        folder.mkdir(exist_ok=True)
        for name in names:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        return folder

    return make


def environ(tmp_path, **more):
    return {"XDG_CACHE_HOME": str(tmp_path / "cache"), **more}


def point_to(tmp_path, path):
    file = pointer(environ(tmp_path))
    file.parent.mkdir(parents=True)
    file.write_text(f"{path}\n")


def error_of(tmp_path, **more):
    with pytest.raises(ControlPlaneError) as caught:
        find_binary(environ(tmp_path, **more))
    return str(caught.value)


def test_without_a_control_plane_one_line_names_the_remedies(tmp_path):
    message = error_of(tmp_path)
    assert message.startswith("there is no control plane yet: run `make tools`")
    assert "KUBEBUILDER_ASSETS" in message
    assert "\n" not in message


def test_the_pointer_leads_to_what_was_built(tmp_path, programs):
    built = programs("controlplane") / "controlplane"
    point_to(tmp_path, built)
    assert find_binary(environ(tmp_path)) == built


def test_what_was_built_may_be_gone(tmp_path):
    point_to(tmp_path, tmp_path / "gone")
    assert error_of(tmp_path).startswith(f"the control plane {tmp_path}/gone is gone: run `make tools`")


def test_kubebuilder_assets_take_precedence(tmp_path, programs):
    folder = programs("controlplane", "etcd", "kube-apiserver")
    point_to(tmp_path, folder / "controlplane")
    assert find_binary(environ(tmp_path, KUBEBUILDER_ASSETS=str(folder))) == folder


def test_a_folder_without_an_api_server_is_rejected(tmp_path, programs):
    folder = programs("etcd")
    message = error_of(tmp_path, KUBEBUILDER_ASSETS=str(folder))
    assert message.startswith(f"KUBEBUILDER_ASSETS={folder} has no kube-apiserver: ")


def test_missing_controllers_are_named_when_they_are_to_run(programs):
    folder = programs("etcd", "kube-apiserver")
    check_parts(folder, ("etcd", "kube-apiserver"))
    with pytest.raises(ControlPlaneError, match="has no kube-controller-manager and no kube-scheduler: "):
        check_parts(folder, PARTS)


def test_a_program_that_cannot_be_run_does_not_count(programs):
    folder = programs(*PARTS)
    (folder / "etcd").chmod(0o644)
    with pytest.raises(ControlPlaneError, match="has no etcd"):
        check_parts(folder, PARTS)


def test_the_combined_binary_gets_the_component_as_argument(tmp_path, programs):
    folder = programs("controlplane", "etcd")
    assert program(folder / "controlplane", "etcd") == [f"{folder}/controlplane", "etcd"]
    assert program(folder, "etcd") == [f"{folder}/etcd"]
