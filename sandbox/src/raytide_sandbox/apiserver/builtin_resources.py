"""The table of kinds that the embedded API server serves without a CustomResourceDefinition.

A `Resource` describes one kind as the store keeps it, whatever version a client uses; `BUILT_IN` lists the built-in
ones and `REVIEWS` those that are never stored. Values only. The store defines its tables from it, the routes and
discovery read it, and `registry.py` adds a `Resource` per CRD.
"""

from dataclasses import dataclass, field
from typing import Any, Final

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind. `key` names it in the store: the plural, or plural.group when there is a group."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    singular: str = ""
    is_custom: bool = False
    storage_key: str = ""
    """Set when two groups serve the same objects (events)."""
    list_kind: str = ""

    @property
    def key(self) -> str:
        """The name of this kind's table in the store."""
        return self.storage_key or self.group_resource

    @property
    def group_resource(self) -> str:
        """The plural as printed in messages: `pods`, `rayclusters.ray.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """The apiVersion of objects of this kind."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_name(self) -> str:
        """The kind of a list of these objects."""
        return self.list_kind or f"{self.kind}List"

    @property
    def singular_name(self) -> str:
        """The singular name, as kubectl accepts it."""
        return self.singular or self.kind.lower()

    @property
    def has_status(self) -> bool:
        """True when status is written only through a subresource."""
        return "status" in self.subresources

    @property
    def has_generation(self) -> bool:
        """True when metadata.generation counts spec changes."""
        return self.is_custom or self.kind in _WITH_GENERATION


_WITH_GENERATION: Final = {
    "Pod",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "CronJob",
    "Ingress",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "CustomResourceDefinition",
}

_SCOPE: Final = {"ns": True, "cluster": False}

# api version | plural | kind | scope | short names | subresources | in `kubectl get all`
_TABLE: Final = """
v1 namespaces Namespace cluster ns status,finalize -
v1 nodes Node cluster no status -
v1 pods Pod ns po status,log,binding,eviction,exec,attach,portforward,proxy all
v1 services Service ns svc status,proxy all
v1 configmaps ConfigMap ns cm - -
v1 secrets Secret ns - - -
v1 serviceaccounts ServiceAccount ns sa token -
v1 events Event ns ev - -
v1 endpoints Endpoints ns ep - -
v1 persistentvolumeclaims PersistentVolumeClaim ns pvc status -
v1 persistentvolumes PersistentVolume cluster pv status -
v1 resourcequotas ResourceQuota ns quota status -
v1 limitranges LimitRange ns limits - -
apps/v1 deployments Deployment ns deploy status,scale all
apps/v1 replicasets ReplicaSet ns rs status,scale all
apps/v1 statefulsets StatefulSet ns sts status,scale all
apps/v1 daemonsets DaemonSet ns ds status all
batch/v1 jobs Job ns - status all
batch/v1 cronjobs CronJob ns cj status all
coordination.k8s.io/v1 leases Lease ns - - -
discovery.k8s.io/v1 endpointslices EndpointSlice ns - - -
networking.k8s.io/v1 ingresses Ingress ns ing status -
networking.k8s.io/v1 ingressclasses IngressClass cluster - - -
networking.k8s.io/v1 networkpolicies NetworkPolicy ns netpol - -
rbac.authorization.k8s.io/v1 roles Role ns - - -
rbac.authorization.k8s.io/v1 rolebindings RoleBinding ns - - -
rbac.authorization.k8s.io/v1 clusterroles ClusterRole cluster - - -
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding cluster - - -
policy/v1 poddisruptionbudgets PodDisruptionBudget ns pdb status -
scheduling.k8s.io/v1 priorityclasses PriorityClass cluster pc - -
storage.k8s.io/v1 storageclasses StorageClass cluster sc - -
events.k8s.io/v1 events Event ns ev - -
apiextensions.k8s.io/v1 customresourcedefinitions CustomResourceDefinition cluster crd,crds status -
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration cluster - - -
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration cluster - - -
"""


def _split(text: str) -> tuple[str, ...]:
    return () if text == "-" else tuple(text.split(","))


def _parse(line: str) -> Resource:
    api_version, plural, kind, scope, short, subresources, categories = line.split()
    group, _, version = api_version.rpartition("/")
    return Resource(
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        is_namespaced=_SCOPE[scope],
        short_names=_split(short),
        subresources=_split(subresources),
        categories=_split(categories),
        storage_key="events" if plural == "events" else "",
    )


BUILT_IN: Final = tuple(_parse(line) for line in _TABLE.strip().splitlines())

CRDS: Final = "customresourcedefinitions.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True)
class Review:
    """A kind that is answered, never stored (`kubectl auth can-i`, TokenReview)."""

    group: str
    plural: str
    kind: str
    is_namespaced: bool = False
    verbs: tuple[str, ...] = field(default=("create",))
    version: str = "v1"


REVIEWS: Final = (
    Review("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    Review("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    Review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
    Review("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", is_namespaced=True),
    Review("authentication.k8s.io", "tokenreviews", "TokenReview"),
    Review("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
)
