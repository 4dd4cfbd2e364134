"""What does this machine allow a node, and what is missing?

Prints one line per requirement; a requirement that is not met has its remedy in the same line. Exit code 1 if one is not
met. Called by `make node-check`.
"""

import sys

import node_machine
from node_requirements import lacks, requirements


def main() -> int:
    """Print the lines."""
    machine = node_machine.read()
    for requirement in requirements(machine):
        print(requirement.line)
    missing = lacks(machine)
    print(f"node: missing: {', '.join(each.name for each in missing)}" if missing else "node: nothing is missing")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
