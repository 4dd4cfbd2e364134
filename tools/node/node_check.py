"""Check of the requirements of a node on this machine.

Prints one line per requirement; a requirement that is not met has its remedy in the same line. With `--lacks` only those
are printed. Exit code 1 if one is not met. Called by `make e2e CHECK=1` and `make e2e ON=node`.
"""

import argparse
import sys

import node_machine
from node_requirements import lacks, requirements


def main() -> int:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--lacks", action="store_true", help="print only what is missing")
    machine = node_machine.read()
    missing = lacks(machine)
    if parser.parse_args().lacks:
        for lack in missing:
            print(f"node: {lack.line}")
        return 1 if missing else 0
    for requirement in requirements(machine):
        print(requirement.line)
    print(f"node: missing: {', '.join(each.name for each in missing)}" if missing else "node: nothing is missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
