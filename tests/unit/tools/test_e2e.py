"""`make e2e ON=kind` and `make e2e ON=node` print "not run" where they cannot run, and report what fails in one line."""

import importlib.util
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[3] / "tools" / "checks" / "e2e.py"


@pytest.fixture
def e2e():
    spec = importlib.util.spec_from_file_location("e2e_tool", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Puts programs on an otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def put(name, script):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)

    return put


def run_main(e2e, monkeypatch, capsys, *args):
    monkeypatch.setattr("sys.argv", ["e2e.py", *args])
    return e2e.main(), capsys.readouterr().out


@pytest.mark.parametrize("all_run", ["", "1"], ids=["by hand", "in CI"])
@pytest.mark.usefixtures("cached_images")
def test_without_docker_and_where_the_machine_allows_none_of_its_own_it_is_not_run(
    e2e, programs, monkeypatch, capsys, all_run
):
    def lack(*_, **__):
        raise e2e.node.NodeMissingError("root: no: run `sudo make e2e ON=node`")

    monkeypatch.setattr(e2e.kind_docker, "prepare_own", lack)
    monkeypatch.setenv("RAYTIDE_ALL_RUN", all_run)
    code, output = run_main(e2e, monkeypatch, capsys, "--kind")
    assert code == (1 if all_run else 0)
    reason = "there is no docker on PATH, and this machine allows no Docker daemon of its own: root: no: run `sudo make e2e ON=node`"
    assert output.splitlines()[0] == f"e2e on kind: not run: {reason}"
    assert "passed" not in output


@pytest.mark.usefixtures("cached_images")
def test_where_it_can_run_a_cluster_that_is_not_created_is_a_failure_and_is_deleted(
    e2e, programs, monkeypatch, capsys, tmp_path
):
    programs("docker", "exit 0")
    programs("kubectl", "exit 0")
    programs("kind", f'echo "$@" >>{tmp_path}/asked; test "$1" != create || {{ echo "no space" >&2; exit 1; }}')
    code, output = run_main(e2e, monkeypatch, capsys, "--kind")
    assert code == 1
    assert "e2e: kind create cluster --name raytide-e2e" in output
    assert "failed:\nno space" in output
    asked = [line.split()[0] for line in (tmp_path / "asked").read_text().splitlines()]
    assert asked == ["delete", "create", "export", "delete"]


def test_without_helm_the_suite_is_a_failure_not_a_skip(e2e, programs, monkeypatch, capsys):
    code, output = run_main(e2e, monkeypatch, capsys, "--kubeconfig", "/nowhere")
    assert code == 1
    assert "no helm on PATH: run `make tools`" in output


# --- a real node ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def cached_images(e2e, monkeypatch, tmp_path):
    """The images are there; they take minutes to make."""
    monkeypatch.setattr(e2e, "CACHE", tmp_path)
    monkeypatch.setattr(e2e.node_images, "ray", lambda _: tmp_path / "ray.tar")
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "raytide.tar").touch()


@pytest.mark.parametrize("all_run", ["", "1"], ids=["by hand", "in CI"])
@pytest.mark.usefixtures("cached_images")
def test_where_the_machine_allows_no_node_it_is_not_run(e2e, monkeypatch, capsys, all_run):
    def lack(*_, **__):
        raise e2e.node.NodeMissingError("root: no: run `sudo make e2e ON=node`")

    monkeypatch.setattr(e2e.node, "prepare", lack)
    monkeypatch.setenv("RAYTIDE_ALL_RUN", all_run)
    code, output = run_main(e2e, monkeypatch, capsys, "--node")
    assert code == (1 if all_run else 0)
    assert output.splitlines()[0] == "e2e on a node: not run: root: no: run `sudo make e2e ON=node`"


@pytest.mark.usefixtures("cached_images")
def test_a_node_that_does_not_start_is_a_failure_of_one_line(e2e, monkeypatch, capsys):
    def fail(*_, **__):
        raise e2e.node.NodeError("the disk of /cache has only 3 MiB left: free up some GiB")

    monkeypatch.setattr(e2e.node, "prepare", fail)
    code, output = run_main(e2e, monkeypatch, capsys, "--node")
    assert (code, output) == (1, "e2e: the disk of /cache has only 3 MiB left: free up some GiB\n")


def test_without_the_image_of_raytide_it_says_how_to_make_it(e2e, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(e2e, "CACHE", tmp_path)
    monkeypatch.setattr(e2e.node_images, "ray", lambda _: tmp_path / "ray.tar")
    code, output = run_main(e2e, monkeypatch, capsys, "--node")
    assert (code, output) == (1, f"e2e: there is no image at {tmp_path}/image/raytide.tar: run `make image`\n")
