"""Access to the cluster as a user has it: with kubectl and helm.

Words go in, what the program says comes out; a program that fails or takes too long fails the test with its own words.
States are waited for with a deadline, and what was seen last is told when the deadline passes. Used by the whole suite.
"""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Json = dict[str, Any]
Found = TypeVar("Found")

POLL_INTERVAL_S = 0.25
PATIENCE = float(os.environ.get("RAYTIDE_TEST_PATIENCE") or 1)
"""Every deadline is so many times longer: for a machine that has other things to do."""


class CommandError(AssertionError):
    """A command failed."""


def run(*args: str, deadline_s: float = 30.0, stdin: str | None = None) -> str:
    """One program; its standard output."""
    deadline_s *= PATIENCE
    try:
        done = subprocess.run(args, input=stdin, capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"not within {deadline_s:g} s: {' '.join(args)}\n{error.stdout}\n{error.stderr}") from None
    if done.returncode:
        raise CommandError(f"{' '.join(args)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def kubectl(*args: str, deadline_s: float = 30.0, stdin: str | None = None) -> str:
    """kubectl, on the cluster of $KUBECONFIG."""
    return run("kubectl", *args, deadline_s=deadline_s, stdin=stdin)


@contextmanager
def forwarded(namespace: str, target: str, port: int) -> Iterator[str]:
    """An address on loopback that `kubectl port-forward` leads to a port of a pod or Service."""
    command = ["kubectl", "port-forward", "-n", namespace, target, f":{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout
            line = process.stdout.readline()
            if "Forwarding from 127.0.0.1:" not in line:
                raise CommandError(f"{' '.join(command)}: {line}")
            yield f"127.0.0.1:{line.partition('127.0.0.1:')[2].partition(' ')[0]}"
        finally:
            process.terminate()


def helm(*args: str, deadline_s: float = 120.0) -> str:
    """Helm, on the same cluster; it keeps nothing outside of it."""
    return run("helm", *args, deadline_s=deadline_s)


def get(kind: str, name: str, namespace: str) -> Json:
    """One object; fails when it is not there."""
    found: Json = json.loads(kubectl("get", kind, name, "-n", namespace, "-o", "json"))
    return found


def listed(kind: str, namespace: str = "", selector: str = "") -> list[Json]:
    """All objects of a kind, in a namespace or everywhere."""
    where = ["-n", namespace] if namespace else ["--all-namespaces"]
    answer = json.loads(kubectl("get", kind, *where, "-l", selector, "-o", "json"))
    items: list[Json] = answer["items"]
    return items


def names(objects: list[Json]) -> set[str]:
    """Their names."""
    return {obj["metadata"]["name"] for obj in objects}


def uids(objects: list[Json]) -> set[str]:
    """Their uids."""
    return {obj["metadata"]["uid"] for obj in objects}


def is_ready(pod: Json) -> bool:
    """Whether the pod is Ready and not terminating."""
    conditions = pod.get("status", {}).get("conditions") or []
    is_ending = "deletionTimestamp" in pod["metadata"]
    return not is_ending and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def eventually(check: Callable[[], tuple[Found, Any]], what: str, deadline_s: float) -> Found:
    """The first true value of `look`; its second value is the message at the deadline."""
    deadline_s *= PATIENCE
    end = time.monotonic() + deadline_s
    while True:
        found, seen = check()
        if found:
            return found
        if time.monotonic() >= end:
            raise CommandError(f"not within {deadline_s:g} s: {what}; last seen: {seen}")
        time.sleep(POLL_INTERVAL_S)


def within(seconds: float) -> str:
    """A deadline as kubectl and helm read it."""
    return f"{seconds * PATIENCE:.0f}s"


def setting(name: str) -> str:
    """A variable of the suite; empty when it is not set."""
    return os.environ.get(name, "")
