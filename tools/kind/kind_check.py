"""Check whether this machine can run a kind cluster, and with which Docker daemon.

Prints one line. Exit codes: 0 with the Docker and kind on PATH, 3 with a daemon of its own, 1 if neither is possible. `--installed`
takes those on PATH only. Called by `make e2e ON=kind`.
"""

import argparse
import sys

import kind_docker
import node_machine

OWN = 3


def main() -> int:
    """Print the line; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--installed", action="store_true", help="only with the Docker and kind on PATH")
    chosen = parser.parse_args()
    why = kind_docker.why_not_installed()
    if not why:
        print("e2e on kind: with the Docker and kind on PATH")
        return 0
    if chosen.installed:
        print(f"e2e on kind: not run: {why}")
        return 1
    if reason := kind_docker.why_no_own(node_machine.read()):
        print(f"e2e on kind: not run: {why}, and this machine allows no Docker daemon of its own: {reason}")
        return 1
    print(f"e2e on kind: {why}: with a Docker daemon of its own, in namespaces of this machine")
    return OWN


if __name__ == "__main__":
    sys.exit(main())
