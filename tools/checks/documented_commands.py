"""Commands in the pages that users read, and which test runs each of them.

Reads the console blocks of the README, of CONTRIBUTING, of docs/ and docs/contributing/, and of the READMEs of samples and chart.
`run_by` has the test of each command: tests that take their commands from the page, the sessions below, which the tests in
`TESTS_OF_SESSIONS` type, and the targets of make that .ci/run and the nightly workflow run. A command with none of them has to be in
`SKIPPED` with a reason, at most five per cent of all. Equal commands of several pages count once. `make verify` prints the numbers;
tests/unit/tools/test_documented_commands.py also compares commands with options, files, targets and chart values.
"""

import ast
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
MAX_SKIPPED: Final = 0.05
"""Part of the commands that may have no test."""
_BLOCK: Final = re.compile(r"^```(console|sh|bash|shell|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT: Final = re.compile(r"^\$ ", re.MULTILINE)
_COMMENT: Final = re.compile(r"\s+# .*$", re.MULTILINE)
_RULE: Final = re.compile(r"^([a-z0-9-]+):([^=\n#]*)(?:#.*)?\n((?:\t.*\n)*)", re.MULTILINE)
"""A rule of the Makefile: target, prerequisites, recipe."""


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


# --- which test runs a command -----------------------------------------------------------------------------------------------

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
            "make demo-down",
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
            "raytide plan --explain",
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
"""The beginnings of the commands that a test types, by page; an empty one stands for all commands of the page."""
TESTS_OF_SESSIONS: Final = {
    "sandbox": "tests/integration/test_documented_commands.py",
    "kubernetes": "tests/integration/test_documented_commands.py",
    "ray": "tests/integration/test_user_guide.py",
    "helm": "tests/integration/test_helm.py",
    "pip": "tests/unit/packaging/test_install.py",
    "release": "tests/unit/tools/test_release.py",
}
SKIPPED: Final[Mapping[str, str]] = {
    "docker build -t registry.example.com/raytide:0.1.0 .": "make image builds the Dockerfile with what the machine has",
    "docker push registry.example.com/raytide:0.1.0": "there is no registry",
    "make bench P=KUBERAY KUBERAY=<path of a manager>": "needs a build of KubeRay",
    "kubectl top pod -n OPERATOR": "needs a metrics server, which no test cluster has",
    'python -c "from ray._private.gcs_utils import cleanup_redis_storage as clean; ': "needs Redis",
    "make e2e": "make e2e-node and make e2e-kind run its suite, on real kubelets",
    "cosign verify ghcr.io/raytide/raytide:<version>": "needs a published release",
    "gh attestation verify raytide-<version>-py3-none-any.whl": "needs a published release",
}
"""Commands that no test runs, by their first words, with the reason."""


def skipped_as(typed: str) -> str | None:
    """The entry of SKIPPED of a command, if it has one."""
    return next((words for words in SKIPPED if f"{typed} ".startswith(f"{words.rstrip()} ")), None)


def session(name: str, page: str = "") -> list[Command]:
    """The commands that the session types, in the order of the page; equal ones once. Without a page: of all pages."""
    found: dict[str, Command] = {}
    for each, beginnings in SESSIONS[name].items():
        for command in commands(each) if page in ("", each) else ():
            if command.text.startswith(beginnings) and skipped_as(command.typed) is None:
                found.setdefault(command.typed, command)
    return list(found.values())


def guide_beginnings() -> set[str]:
    """The beginnings of the commands that tests/integration/test_user_guide.py types from the guide."""
    tree = ast.parse((ROOT / "tests/integration/test_user_guide.py").read_text())
    return {
        str(call.args[0].value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in {"does", "shows", "example"}
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }


def targets_of_ci() -> dict[str, str]:
    """The targets of make that CI runs for a commit or at night, each with what runs it."""
    in_ci = re.findall(r"^ *level (?:nice -n 19 )?make ([a-z0-9-]+)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    found = {target: f".ci/run: make {target}" for target in in_ci}
    nightly = ".github/workflows/nightly.yaml"
    rules = {
        target: (needs.split(), recipe) for target, needs, recipe in _RULE.findall((ROOT / "Makefile").read_text())
    }
    for target in re.findall(r"^ *- run: make ([a-z0-9-]+)$", (ROOT / nightly).read_text(), re.MULTILINE):
        for each in (target, *re.findall(r"\$\(MAKE\) -s ([a-z0-9-]+)", rules[target][1])):
            found.setdefault(each, f"{nightly}: make {target}")
    for target, (needs, recipe) in rules.items():
        if recipe.strip() == "@bash .ci/run":
            found.setdefault(target, ".ci/run")
        elif needs and not recipe and found.keys() >= {*needs}:
            found.setdefault(target, ", ".join(found[each] for each in needs))
    return found


def run_by() -> dict[str, str]:
    """The test of each command that has one, by the command without comments."""
    found: dict[str, str] = {}
    for typed, test in _with_tests():
        found.setdefault(typed, test)
    return found


def _with_tests() -> Iterator[tuple[str, str]]:
    for name, test in TESTS_OF_SESSIONS.items():
        yield from ((command.typed, test) for command in session(name))
    beginnings = tuple(guide_beginnings())
    for command in commands("docs/user-guide.md"):
        if command.text.startswith(beginnings):
            yield command.typed, "tests/integration/test_user_guide.py"
    for command in commands("docs/plan.md"):
        if command.output:
            yield command.typed, "tests/unit/cli/test_plan_page.py"
    yield from ((command.typed, "tests/integration/test_quickstart.py") for command in commands("docs/quickstart.md"))
    for command in commands("README.md"):
        if command.typed.startswith(("helm install", "kubectl apply -f samples/raycluster.yaml")):
            yield command.typed, "e2e/test_1_install.py"
    targets = targets_of_ci()
    for command in (command for page in pages() for command in commands(page)):
        if (target := re.fullmatch(r"make ([a-z0-9-]+)", command.typed)) and target[1] in targets:
            yield command.typed, targets[target[1]]


@dataclass(frozen=True, slots=True)
class Inventory:
    """All commands, each with its test or the reason why it has none."""

    run: Mapping[str, str]
    skipped: Mapping[str, str]
    unknown: Mapping[str, str]
    """Commands without either, with their page."""

    @property
    def count(self) -> int:
        """The number of different commands."""
        return len(self.run) + len(self.skipped) + len(self.unknown)

    def __str__(self) -> str:
        part = len(self.skipped) / max(1, self.count)
        return (
            f"documented commands: {self.count}, {len(self.run)} run by tests, {len(self.skipped)} skipped ({part:.1%})"
        )


def inventory() -> Inventory:
    """Every command of every page."""
    tests, run, skipped, unknown = run_by(), {}, {}, {}
    for page in pages():
        for command in commands(page):
            typed = command.typed
            words = skipped_as(typed)
            if typed in tests:
                run[typed] = tests[typed]
            elif words is not None:
                skipped[typed] = SKIPPED[words]
            else:
                unknown[typed] = page
    return Inventory(run, skipped, unknown)


def faults(found: Inventory) -> Iterator[str]:
    """What is wrong with the inventory."""
    for typed, page in found.unknown.items():
        yield f"{page}: no test runs this command: {typed}"
    for unused in sorted(SKIPPED.keys() - {skipped_as(typed) for typed in found.skipped}):
        yield f"SKIPPED has a command that no page has, or that a test runs: {unused}"
    if len(found.skipped) > MAX_SKIPPED * found.count:
        yield f"more than {MAX_SKIPPED:.0%} of the commands are skipped: {len(found.skipped)} of {found.count}"
    for name, by_page in SESSIONS.items():
        for page, beginnings in by_page.items():
            texts = [command.text for command in commands(page)]
            for beginning in beginnings:
                if not any(text.startswith(beginning) for text in texts):
                    yield f"session {name}: {page} has no command that begins with {beginning!r}"


def main() -> int:
    """Print the numbers, and what is wrong; 1 if anything is."""
    found = inventory()
    print(found)
    wrong = list(faults(found))
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
