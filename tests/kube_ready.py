"""Is there a control plane to test on? One line and exit code 1 if not; asked by `make test-kube` before it begins."""

import os
import sys

from raytide.sandbox.kubernetes import PlaneTrouble, find_binary

from kube_plane import KUBECONFIG_VARIABLE


def main() -> int:
    """0 when the suite has something to run on."""
    if os.environ.get(KUBECONFIG_VARIABLE):
        return 0
    try:
        find_binary(os.environ)
    except PlaneTrouble as trouble:
        sys.stderr.write(f"test-kube: {trouble}, or {KUBECONFIG_VARIABLE} to a kubeconfig of a test cluster\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
