"""All requests of the operator were permitted (SE:C7), and uninstalling leaves nothing but the documented objects.

The end of the story: the audit log of everything before is read, and helm takes the release away.
"""

import audit
from cluster import eventually, helm, listed, names, within
from scenario import everything

AUTOSCALED = "autoscaled"
"""The cluster of the part before; its autoscaler acts under this name."""


def test_nothing_was_forbidden(installation, audit_log):
    asked = audit.requests_of(audit_log, installation.user)
    assert asked, f"the audit log does not know {installation.user}"
    assert audit.forbidden(asked) == []


def test_no_request_of_the_autoscaler_was_forbidden_and_it_sent_few(installation, audit_log, figures):
    user = f"system:serviceaccount:{installation.ray_namespace}:{AUTOSCALED}"
    asked = audit.requests_of(audit_log, user)
    used = audit.counted(asked)
    figures.extend(f"{times:6d}  {right} by the autoscaler" for right, times in sorted(used.items()))
    assert used["patch rayclusters.ray.io"], f"the audit log does not know {user}"
    gone_at = audit.deleted_at(audit_log, "rayclusters", AUTOSCALED)
    assert gone_at, "an earlier test deletes it"
    # With the RayCluster goes the role, perhaps a moment before the sidecar hears that it has nothing left to ask for.
    assert audit.forbidden(request for request in asked if request.at < gone_at) == []
    own = {f"{verb} rayclusters.ray.io" for verb in ("get", "list", "watch", "patch")}
    assert set(used) <= {*own, "list pods", "watch pods"}


def test_the_operator_itself_never_wrote_a_raycluster(installation, audit_log):
    used = audit.counted(audit.requests_of(audit_log, installation.user))
    assert used["patch rayclusters/status.ray.io"]
    assert not used["patch rayclusters.ray.io"], "it holds the right only to pass it on"


def test_every_right_is_used_or_explained(installation, audit_log, figures):
    used = audit.counted(audit.requests_of(audit_log, installation.user))
    for right in sorted(installation.granted):
        because = audit.UNUSED_BECAUSE.get(right, "no reason is listed for granting it")
        figures.append(f"{used[right]:6d}  {right}{'' if used[right] else ': ' + because}")
    unused = {right for right in installation.granted if not used[right]}
    assert unused <= set(audit.UNUSED_BECAUSE)
    assert set(audit.UNUSED_BECAUSE) <= installation.granted
    assert set(used) <= installation.granted


def test_uninstall_leaves_nothing_but_the_crds(installation):
    helm("uninstall", installation.release, "-n", installation.namespace, "--wait", "--timeout", within(60))
    kinds = ("deployments", "replicasets", "pods", "services", "leases", "roles", "rolebindings", "secrets")

    def check():
        left = list(everything(installation.namespace, *kinds, "serviceaccounts"))
        left += [
            f"{kind}/{name}"
            for kind in ("clusterroles", "clusterrolebindings")
            for name in names(listed(kind, selector=installation.of_release))
        ]
        return not left, left

    eventually(check, "nothing is left of the release", 60)
    assert {"rayclusters.ray.io", "trainingjobs.paddlepaddle.org"} <= names(listed("crds"))
