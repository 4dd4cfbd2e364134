"""buildah from PATH, or unpacked from Debian's packages in the cache folder.

Containers run with chroot isolation, and images are full copies (storage driver vfs), so that only root and mount and PID
namespaces are needed. Each command runs in namespaces of its own: its processes and mounts, and what it writes below /var/lib, end
with it. Images are in a folder of the caller, which removes it. Used by image.py.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import debian_packages
import image_container
from build_cache import UNFINISHED
from image_builders import PULL_DEADLINE_S, Containers, ask, must

NAMESPACES: Final = (
    "setpriv", "--pdeathsig", "KILL",
    "unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
)  # fmt: skip
"""Mounts and processes end with the command, and the command with this process, also when it is killed."""
ISOLATED: Final = (
    *NAMESPACES, "--mount-proc", "sh", "-c",
    'if [ -n "$1" ]; then mount --bind "$1" /etc/ld.so.cache; fi && mount -t tmpfs tmpfs /var/lib && shift && exec "$@"',
    "sh",
)  # fmt: skip
"""The first argument is a cache of the dynamic loader with the unpacked libraries: buildah executes itself with an empty
environment, without LD_LIBRARY_PATH. /var/lib is a tmpfs because the path of a cache in /var/lib/containers cannot be set."""
POLICY: Final = {"default": [{"type": "insecureAcceptAnything"}]}
"""Signatures are not verified, as with Docker: images are pinned by their digest."""


def is_wanted(package: str) -> bool:
    """Whether buildah needs the files of this dependency; libc is the machine's."""
    is_library = package.startswith("lib") and not package.startswith(("libc6", "libperl"))
    return package == "buildah" or is_library


def provide(cache: Path) -> Path:
    """The folder with buildah and its libraries, unpacked at the first call; raises DebianError. The caller has locked `cache`."""
    folder = cache / f"buildah-{debian_packages.release()}"
    if folder.exists():
        return folder
    print("unpacking buildah from Debian's packages …", flush=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=UNFINISHED) as work:
        made = Path(work, "made")
        packages = debian_packages.Apt(Path(work)).download(("buildah",), is_wanted)
        debian_packages.unpack(packages, made)
        shutil.rmtree(made / "usr" / "share", ignore_errors=True)
        made.replace(folder)
    return folder


class Buildah:
    """buildah with its images and settings in `work`."""

    name = "buildah"

    def __init__(self, cache: Path, work: Path) -> None:
        for name in ("root", "run", "tmp"):
            (work / name).mkdir()
        self._work = work
        loader_cache, program = "", shutil.which("buildah")
        if program is None:
            unpacked = provide(cache)
            loader_cache, program = self._loader_cache(unpacked), str(unpacked / "usr" / "bin" / "buildah")
        policy, registries = Path("/etc/containers/policy.json"), Path("/etc/containers/registries.conf")
        if not policy.exists():
            policy = work / "policy.json"
            policy.write_text(json.dumps(POLICY))
        if not registries.exists():
            registries = work / "registries.conf"
            registries.write_text("")
        storage = ("--root", str(work / "root"), "--runroot", str(work / "run"), "--storage-driver", "vfs")
        self._command = (*ISOLATED, loader_cache, program, *storage, "--registries-conf", str(registries))
        self._policy = ("--signature-policy", str(policy))
        self._environ = os.environ | {"TMPDIR": str(work / "tmp"), "CONTAINERS_CONF": os.devnull}

    def _loader_cache(self, unpacked: Path) -> str:
        """Path of a cache of the dynamic loader with the unpacked libraries before those of the machine."""
        folders = sorted({str(path.parent) for path in unpacked.rglob("*.so.*")})
        listed, cache = self._work / "libraries", self._work / "ld.so.cache"
        listed.write_text("".join(f"{folder}\n" for folder in folders))
        ldconfig = shutil.which("ldconfig", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") or "ldconfig"
        must([ldconfig, "-X", "-f", str(listed), "-C", str(cache)])
        return str(cache)

    def _must(self, action: str, *words: str) -> str:
        return must([*self._command, action, *words], self._environ)

    def pull(self, reference: str) -> str:
        """Pull an image; returns the last line of the error, empty if it succeeded."""
        command = (*self._command, "pull", "--quiet", *self._policy, reference)
        pulled = ask(*command, deadline_s=PULL_DEADLINE_S, environ=self._environ)
        return debian_packages.last_line(pulled.stderr) or "it failed" if pulled.returncode else ""

    def load(self, archive: Path) -> None:
        """Load the image of a docker-archive."""
        self._must("pull", "--quiet", *self._policy, f"docker-archive:{archive}")

    def build(self, context: Path, reference: str, arguments: Mapping[str, str]) -> None:
        """Build the Dockerfile of `context` with these build arguments."""
        options = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        isolation = ("--isolation", "chroot", "--format", "docker")
        self._must("bud", *self._policy, *isolation, "--tag", reference, *options, str(context))

    def layer_count(self, reference: str) -> int:
        """Number of layers of an image."""
        return int(self._must("inspect", "--type", "image", "--format", "{{len .OCIv1.RootFS.DiffIDs}}", reference))

    def save(self, reference: str, target: Path) -> None:
        """Write the image as a docker-archive."""
        self._must("push", "--quiet", *self._policy, reference, f"docker-archive:{target}:{reference}")

    def remove(self, reference: str) -> None:
        """Nothing to do: the caller removes the folder with all images."""

    @contextmanager
    def containers(self, reference: str, service_account: Path) -> Iterator[Containers]:
        """Containers of an image with this folder mounted as the service account of the pod."""
        container = self._must("from", *self._policy, reference).split()[-1]
        root = Path(self._must("mount", container).split()[-1])  # a folder: the driver vfs mounts nothing
        config = json.loads(self._must("inspect", "--type", "image", reference))["OCIv1"]["config"]
        yield ChrootContainers(root, config["Entrypoint"], config["Env"], service_account)
        self._must("rm", container)


class ChrootContainers:
    """Containers of an unpacked image."""

    end_signal = signal.SIGKILL  # unshare ignores SIGTERM, and --kill-child ends the container with it
    has_own_processes = True

    def __init__(self, root: Path, entry_point: list[str], environ: list[str], service_account: Path) -> None:
        self._root = root
        self._entry_point = entry_point
        self._environ = environ
        self._service_account = service_account

    def command(self, user: tuple[int, int], environ: Mapping[str, str], *arguments: str) -> list[str]:
        """The command that runs the image's entry point."""
        given = [*self._environ, *(f"{name}={value}" for name, value in environ.items())]
        words = [str(self._root), str(self._service_account), str(user[0]), str(user[1])]
        command = [sys.executable, image_container.__file__, *words, *given, *self._entry_point, *arguments]
        return [*NAMESPACES, *command]
