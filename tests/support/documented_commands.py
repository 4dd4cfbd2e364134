"""Commands in the pages that users read, and which of them a test types.

Reads the console blocks of the README, of CONTRIBUTING, of docs/ and docs/contributing/, and of the READMEs of samples and chart.
A session has the commands that one test file types, in the order of the page; equal ones once.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_BLOCK: Final = re.compile(r"^```(console|sh|bash|shell|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT: Final = re.compile(r"^\$ ", re.MULTILINE)
_COMMENT: Final = re.compile(r"\s+# .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a page, and its output there."""

    page: str
    text: str
    output: tuple[str, ...] = ()

    @property
    def typed(self) -> str:
        """Without comments."""
        return _COMMENT.sub("", self.text).strip()


def pages() -> list[str]:
    """Paths in the repository."""
    guides = sorted(
        str(path.relative_to(ROOT)) for folder in ("docs", "docs/contributing") for path in (ROOT / folder).glob("*.md")
    )
    return ["README.md", "CONTRIBUTING.md", *guides, "samples/README.md", "helm/raytide/README.md"]


def commands(page: str) -> list[Command]:
    """The commands of a page: those after `$ `; in a page without prompts each line of a console block; each script as one."""
    text = (ROOT / page).read_text()
    blocks = _BLOCK.findall(text)
    has_prompts = any(_PROMPT.search(block) for language, block in blocks if language == "console")
    found = []
    for language, block in blocks:
        if block.startswith("#!"):
            found.append(Command(page, block.rstrip()))
        elif _PROMPT.search(block):
            found += [Command(page, command, output) for command, output in prompted(block)]
        elif language in {"sh", "bash", "shell"} or (language == "console" and not has_prompts):
            found += [Command(page, command) for command in _lines(block)]
    return found


def prompted(block: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each command after `$ ` and the lines of its output."""
    for part in _PROMPT.split(block)[1:]:
        lines = part.splitlines()
        end = next(n for n in range(1, len(lines) + 1) if _is_complete("\n".join(lines[:n])))
        yield "\n".join(lines[:end]), tuple(lines[end:])


def _lines(block: str) -> Iterator[str]:
    lines = block.splitlines()
    while lines:
        end = next(n for n in range(1, len(lines) + 1) if _is_complete("\n".join(lines[:n])))
        yield "\n".join(lines[:end])
        lines = lines[end:]


def _is_complete(command: str) -> bool:
    """Whether a shell would run it, or read on."""
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return not command.endswith("\\")


SESSIONS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "sandbox": {
        "README.md": (
            "export PATH=",
            "raytide sandbox up",
            "export KUBECONFIG=$(",
            "raytide operator &",
            "kubectl get raycluster -w",
            "raytide sandbox down",
            "export KUBECONFIG=…",
            "kubectl get all",
            "kubectl describe raycluster autoscaled",
            "kubectl logs <head pod>",
            "git clone",
            "make demo DOWN=1",
        ),
        "docs/sandbox.md": (
            "kubectl get nodes",
            "raytide sandbox status",
            "kubectl run t ",
            "kubectl describe pod t",
            "kubectl exec box -- ls",
            "kubectl cp box:",
            "kubectl exec deploy/raytide",
            "kubectl exec box -- python3",
            "kubectl get svc web",
            "curl -s -o /dev/null",
            "kubectl debug box",
            "kill -9 ",
        ),
        "docs/training.md": (
            "raytide sandbox up --image",
            "kubectl apply -f samples/trainingjob.yaml",
            "kubectl get trainingjobs",
            "kubectl logs training-trainer-3",
            "kubectl scale ",
            "kubectl exec training-trainer-1",
            "kubectl exec training-master",
            "kubectl logs training-master",
            "kubectl describe trainingjob training",
        ),
        "docs/trainingjob.md": ("",),
        "docs/ui.md": ("raytide ui", "kubectl -n raytide port-forward", "kubectl create token"),
        "docs/diagnose.md": ("",),
        "docs/why.md": ("",),
        "docs/plan.md": (
            "kubectl get nodes,pods",
            "raytide plan                 ",
            "raytide plan --submit",
        ),
        "docs/migrating.md": ("kubectl ", "grep ", "diff ", "raytide "),
        "docs/runbooks.md": (
            "raytide ",
            "kubectl get pods",
            "kubectl get events",
            "kubectl get raycluster",
            "kubectl get tj",
            "kubectl get lease",
            "kubectl get --raw '/readyz",
            "kubectl logs",
            "kubectl describe",
            "kubectl auth",
            "kubectl port-forward",
            "curl ",
        ),
        "docs/user-guide.md": (
            "kubectl apply -f crds/",
            "raytide why big",
            'eval "$(',
            "_RAYTIDE_COMPLETE=fish_source",
            "#!/bin/sh",
        ),
    },
    "kubernetes": {
        "docs/sandbox.md": ("raytide sandbox up --api kubernetes", "kubectl create deployment", "kubectl get pods"),
        "docs/runbooks.md": ("kubectl get --raw /metrics",),
    },
    "ray": {
        "README.md": ("kubectl exec <head pod>",),
        "docs/sandbox.md": (
            "kubectl wait",
            "kubectl exec $(kubectl get pod",
            "kubectl logs -f sample-head-",
            "kubectl port-forward svc/sample-head-svc",
            "curl -s localhost:8265",
        ),
    },
    "helm": {"helm/raytide/README.md": ("helm install",), "docs/ui.md": ("helm upgrade",)},
    "pip": {"docs/user-guide.md": ("pip install",)},
    "release": {"docs/contributing/release.md": ("sha256sum ",)},
}
"""The beginnings of the commands that a test types, by session and page; an empty one stands for all commands of the page."""
NOT_TYPED: Final = (
    "kubectl top pod -n OPERATOR",  # needs a metrics server, which no test cluster has
    'python -c "from ray._private.gcs_utils import cleanup_redis_storage as clean; ',  # needs Redis
)
"""Commands of a page that is typed whole which no test cluster can run, by their first words."""


def session(name: str, page: str = "") -> list[Command]:
    """The commands that the session types, in the order of the page; equal ones once. Without a page: of all pages."""
    found: dict[str, Command] = {}
    for each, beginnings in SESSIONS[name].items():
        for command in commands(each) if page in ("", each) else ():
            if command.text.startswith(beginnings) and not command.typed.startswith(NOT_TYPED):
                found.setdefault(command.typed, command)
    return list(found.values())
