"""Check of the requirements of a node on this machine.

Prints one line per requirement, with the fix if it is not met; with `--lacks` only those that are not met. The exit code is 1
if one is not met. Called by `make e2e CHECK=1` and `make e2e ON=node`.
"""

import argparse
import sys

import node_machine
from node_requirements import requirements, unmet


def main() -> int:
    """Print the lines; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lacks", action="store_true", help="print only what is missing")
    machine = node_machine.read()
    missing = unmet(machine)
    if parser.parse_args().lacks:
        lines = [f"node: {requirement.line}" for requirement in missing]
    else:
        lines = [requirement.line for requirement in requirements(machine)]
        lines.append(f"node: missing: {', '.join(each.name for each in missing) or 'nothing'}")
    print(*lines, sep="\n", end="\n" if lines else "")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
