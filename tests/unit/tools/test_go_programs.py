"""Builds, cache and messages of `make tools`. A small script replaces Go."""

import shutil
import threading

import pytest

import control_plane
import go_build
import kube_tools
from raytide_sandbox.controlplane.binaries import find_binary

GO = """#!/bin/sh
case "$1" in
env) printf '%s\\nlinux\\namd64\\n' "$FAKE_VERSION" ;;
build)
    echo "$PWD $*" >>"$FAKE_LOG"
    [ -z "$FAKE_REFUSAL" ] || { echo "$FAKE_REFUSAL" >&2; exit 1; }
    while [ "$1" != -o ]; do shift; done
    printf '#!/bin/sh\\n' >"$2"
    chmod 755 "$2"
    ;;
esac
"""


class Env:
    """A PATH, a cache folder and a module of a test's own."""

    def __init__(self, folder, monkeypatch):
        self.folder, self._monkeypatch = folder, monkeypatch
        self.programs = folder / "bin"
        self.programs.mkdir()
        for tool in ("sh", "chmod"):
            (self.programs / tool).symlink_to(shutil.which(tool))
        self.environ = {"PATH": str(self.programs), "XDG_CACHE_HOME": str(folder / "cache")}
        self.set(FAKE_VERSION="go1.26.8", FAKE_LOG=str(folder / "built"), **self.environ)
        monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
        self.module = folder / "module"
        for name in ("", "tools/helm", "tools/kwok"):
            (self.module / name).mkdir(parents=True)
            (self.module / name / "go.mod").write_text("module m\n\ngo 1.25.0\n")
            (self.module / name / "go.sum").write_text("")
        (self.module / "main.go").write_text("package main\n")

    def set(self, **variables):
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    def put(self, name, text="#!/bin/sh\n"):
        (self.programs / name).write_text(text)
        (self.programs / name).chmod(0o755)

    def built(self):
        log = self.folder / "built"
        return log.read_text().splitlines() if log.exists() else []

    def provide(self, **more):
        return control_plane.provide({**self.environ, **more}, self.module)


@pytest.fixture
def env(tmp_path, monkeypatch):
    made = Env(tmp_path, monkeypatch)
    made.put("go", GO)
    packages = {
        "kubectl": (made.module, "a/kubectl"),
        "helm": (made.module / "tools/helm", "b/helm"),
        "kwok": (made.module / "tools/kwok", "c/kwok"),
    }
    monkeypatch.setattr(kube_tools, "PACKAGES", packages)
    return made


# --- the control plane ----------------------------------------------------------------------------------------------------
def test_a_second_call_builds_nothing(env):
    first = env.provide()
    assert env.provide() == first
    assert len(env.built()) == 1


def test_what_was_built_is_found(env):
    built = env.provide()
    assert find_binary(env.environ) == built


@pytest.mark.parametrize("name", control_plane.SOURCES)
def test_every_source_counts(env, name):
    before = env.provide()
    with (env.module / name).open("a") as file:
        file.write("// changed\n")
    after = env.provide()
    assert after != before
    assert before.exists()
    assert find_binary(env.environ) == after


def test_gos_version_counts(env):
    before = env.provide()
    env.set(FAKE_VERSION="go1.27.1")
    assert env.provide() != before


def test_the_cache_does_not_depend_on_the_folder_of_the_module(env):
    before = env.provide()
    moved = env.module.rename(env.folder / "elsewhere")
    assert control_plane.provide(env.environ, moved) == before


def test_nothing_of_the_users_changes_what_is_built(env):
    env.provide()
    assert all(flag in env.built()[0] for flag in ("-mod=readonly", "-trimpath", "-buildvcs=false"))
    assert go_build.SETTINGS == {"GOFLAGS": "", "GOWORK": "off", "CGO_ENABLED": "0"}


def test_the_build_sets_the_version_of_kubernetes(env):
    """The module proxy's sources have a placeholder there, and helm rejects charts on a cluster of version 0.0."""
    required = "\nrequire (\n\tk8s.io/kubernetes v1.35.4\n\tk8s.io/kubectl v0.35.4\n)\n"
    (env.module / "go.mod").write_text(f"module m\n\ngo 1.25.0\n{required}")
    env.provide()
    (line,) = env.built()
    for flag in ("gitVersion=v1.35.4", "gitMajor=1", "gitMinor=35"):
        assert f"-X {go_build.KUBERNETES}.{flag}" in line


def test_a_failed_build_leaves_no_file_and_prints_the_error_of_go(env, monkeypatch, capsys):
    env.set(FAKE_REFUSAL="missing go.sum entry")
    monkeypatch.setattr(control_plane, "provide", lambda provide=control_plane.provide: provide(module=env.module))
    assert control_plane.main() == 2
    assert capsys.readouterr().err == "building controlplane failed:\nmissing go.sum entry\n"
    assert [path.name for path in (env.folder / "cache").rglob("*") if path.is_file()] == ["lock"]


def test_what_a_killed_build_left_is_cleared_away(env):
    built = env.provide()
    (built.parent / ".building-abc").mkdir()
    built.unlink()
    env.provide()
    assert [path.name for path in built.parent.iterdir()] == ["controlplane"]


def test_two_builds_at_once_are_one(env):
    results = []
    threads = [threading.Thread(target=lambda: results.append(env.provide())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 2
    assert len(env.built()) == 1


@pytest.mark.parametrize(
    ("version", "message"),
    [
        pytest.param(None, "Go 1.25.0 or newer is needed, and there is no go on PATH", id="no Go"),
        pytest.param(
            "go1.19.8", "Go 1.25.0 or newer is needed, but the one on PATH cannot be used (go1.19.8)", id="an old Go"
        ),
    ],
)
def test_one_line_names_what_to_install_or_set(env, monkeypatch, capsys, version, message):
    if version is None:
        (env.programs / "go").unlink()
    else:
        env.set(FAKE_VERSION=version)
    monkeypatch.setattr(control_plane, "provide", lambda provide=control_plane.provide: provide(module=env.module))
    assert control_plane.main() == 2
    output = capsys.readouterr()
    assert output.err.startswith(
        message + ": install it (https://go.dev/dl), or set KUBEBUILDER_ASSETS to a folder with etcd"
    )
    assert (output.err.count("\n"), output.out) == (1, "")


def test_a_go_that_rejects_the_module_is_too_old(env):
    env.put(
        "go", "#!/bin/sh\necho 'go: go.mod requires go >= 1.25.0 (running go 1.22.1; GOTOOLCHAIN=local)' >&2\nexit 1\n"
    )
    with pytest.raises(go_build.GoMissingError, match=r"running go 1\.22\.1"):
        env.provide()


def test_configured_binaries_are_checked_and_used(env, capsys):
    for name in ("etcd", "kube-apiserver", "kube-controller-manager"):
        env.put(name)
    env.set(KUBEBUILDER_ASSETS=str(env.programs))
    assert control_plane.main() == 2
    assert capsys.readouterr().err.startswith(f"{env.programs} has no kube-scheduler: ")
    env.put("kube-scheduler")
    assert control_plane.main() == 0
    assert capsys.readouterr().out.startswith(f"control plane: {env.programs} (")
    assert env.built() == []


# --- kubectl, helm and kwok -----------------------------------------------------------------------------------------------
def test_only_tools_that_are_missing_are_built(env):
    env.put("kubectl")
    found = kube_tools.provide(env.environ)
    assert found["kubectl"] == env.programs / "kubectl"
    assert [line.split()[-1] for line in env.built()] == ["b/helm", "c/kwok"]
    assert {name: kube_tools.find_tool(name, env.environ) for name in found} == found
    kube_tools.provide(env.environ)
    assert len(env.built()) == 2


def test_each_tool_is_built_from_its_own_module(env):
    kube_tools.provide(env.environ)
    assert [line.split()[0] for line in env.built()] == [
        str(env.module),
        str(env.module / "tools/helm"),
        str(env.module / "tools/kwok"),
    ]


def test_with_all_tools_on_path_no_go_is_needed(env):
    (env.programs / "go").unlink()
    for name in kube_tools.PACKAGES:
        env.put(name)
    assert set(kube_tools.provide(env.environ)) == set(kube_tools.PACKAGES)


def test_a_tool_on_path_comes_first(env):
    kube_tools.provide(env.environ)
    env.put("helm")
    assert kube_tools.find_tool("helm", env.environ) == env.programs / "helm"


def test_a_missing_tool_is_reported_in_one_line(env, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kube_tools.py", "--find", "kwok"])
    assert kube_tools.main() == 2
    assert capsys.readouterr().err == "no kwok on PATH: run `make tools` (builds it, needs Go), or install it\n"


def test_without_go_the_missing_tools_are_named(env, monkeypatch, capsys):
    (env.programs / "go").unlink()
    monkeypatch.setattr("sys.argv", ["kube_tools.py"])
    assert kube_tools.main() == 2
    output = capsys.readouterr().err
    assert output == (
        "Go 1.25.0 or newer is needed, and there is no go on PATH: install it (https://go.dev/dl), "
        "or put kubectl, helm, kwok on PATH\n"
    )


def test_the_modules_are_pinned():
    for module, package in kube_tools.PACKAGES.values():
        assert (module / "go.sum").stat().st_size > 1000
        assert f"tool {package}\n" in (module / "go.mod").read_text()
