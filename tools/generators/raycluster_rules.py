"""CEL rules of the RayCluster CRD.

Each function returns the `x-kubernetes-validations` of one path in the schema; rule ids in docstrings are those of
`raytide.raycluster.validation`, which checks the same without an API server. Stored objects must stay editable. For small values
Kubernetes ensures that (unchanged values are not validated again), for large ones `unless_before`: a rule that was violated before
the write may still be violated. Used by raycluster_schema.py.
"""

from crd_parts import DNS_1035_MESSAGE, Rule, rule, unless_before

MAX_NAME_LENGTH = 53
NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
LABEL_VALUE_PATTERN = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
LABEL_KEY_PATTERN = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
MANAGED_BY = ("ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue")

# A Ray version of at least 2.52, 2.55, 2.56, parsed as in validation: v is optional, a suffix is ignored.
SINCE_2_52 = r"^v?(2[.](5[2-9]|[6-9][0-9]|[1-9][0-9][0-9]+)|[3-9][.][0-9]|[1-9][0-9]+[.][0-9])"
SINCE_2_55 = SINCE_2_52.replace("5[2-9]", "5[5-9]")
SINCE_2_56 = SINCE_2_52.replace("5[2-9]", "5[6-9]")

HEAD = "self.headGroupSpec"
HEAD_POD = f"{HEAD}.template.spec"
# Objects stored with an older CRD may lack required fields: a rule that reads them would reject all writes.
HAS_HEAD_TEMPLATE = f"has({HEAD}) && has({HEAD}.template) && has({HEAD}.template.spec)"
V2_BY_FIELD = (
    "(has(self.autoscalerOptions) && has(self.autoscalerOptions.version) && self.autoscalerOptions.version == 'v2')"
)
IS_AUTOSCALED = "(has(self.enableInTreeAutoscaling) && self.enableInTreeAutoscaling)"


def head_has_env(condition: str) -> str:
    """Whether the Ray container of the head, the first, has an environment variable `e` for which the condition holds."""
    container = f"{HEAD_POD}.containers[0]"
    return (
        f"({HAS_HEAD_TEMPLATE} && has({HEAD_POD}.containers) && size({HEAD_POD}.containers) > 0 && "
        f"has({container}.env) && {container}.env.exists(e, has(e.name) && {condition}))"
    )


def any_group(condition: str) -> str:
    """Whether a worker group `g` meets the condition."""
    return f"(has(self.workerGroupSpecs) && self.workerGroupSpecs.exists(g, {condition}))"


def root_rules() -> list[Rule]:
    """The object: it has a spec. `required` would also apply to objects stored without one."""
    return [
        rule(
            "oldSelf.hasValue() || has(self.spec)",
            "must set at least headGroupSpec",
            optionalOldSelf=True,
            fieldPath=".spec",
            reason="FieldValueRequired",
        )
    ]


def name_rules() -> list[Rule]:
    """The name: V-1, V-2."""
    return [
        rule(f"self.size() <= {MAX_NAME_LENGTH}", f"must be no more than {MAX_NAME_LENGTH} characters"),
        rule(f"self.matches('{NAME_PATTERN}')", DNS_1035_MESSAGE),
    ]


def label_key_rules() -> list[Rule]:
    """Labels of head and groups: V-6, V-13."""
    return [
        rule(
            f"self.all(k, k.matches('{LABEL_KEY_PATTERN}'))",
            "keys must be label keys: an optional prefix and '/', and a name of at most 63 alphanumeric characters, '-', '_' or '.'",
        )
    ]


def param_rules() -> list[Rule]:
    """Parameters of `ray start`, head and groups: V-5, V-13."""
    return [rule("!('labels' in self)", "must not contain labels; set the field labels of this group instead")]


def ray_group_rules() -> list[Rule]:
    """Head and worker groups: V-4, V-12."""
    doubled = " || ".join(
        f"('{key}' in self.rayStartParams && self.rayStartParams['{key}'] != '')"
        for key in ("num-cpus", "num-gpus", "memory", "resources")
    )
    return [
        *unless_before(
            f"!has(self.resources) || size(self.resources) == 0 || !has(self.rayStartParams) || !({doubled})",
            "must not be set together with num-cpus, num-gpus, memory or resources in rayStartParams; remove one of the two",
            fieldPath=".resources",
        )
    ]


def worker_group_rules() -> list[Rule]:
    """One worker group: V-11, V-12."""
    return [
        *ray_group_rules(),
        *unless_before(
            "self.minReplicas <= self.maxReplicas",
            "must be less than or equal to maxReplicas",
            fieldPath=".minReplicas",
        ),
    ]


def managed_by_rules() -> list[Rule]:
    """Field managedBy: known controllers, immutable."""
    return [
        rule(f"self in {list(MANAGED_BY)!r}", f"must be {' or '.join(MANAGED_BY)}"),
        rule("self == oldSelf", "field is immutable; to change it, delete the RayCluster and create it again"),
    ]


def backend_rules() -> list[Rule]:
    """Backend of fault tolerance: immutable."""
    return [rule("self == oldSelf", "field is immutable; to change it, delete the RayCluster and create it again")]


def fault_tolerance_rules() -> list[Rule]:
    """Fault tolerance: V-23 to V-27, V-31."""
    is_rocksdb = "(has(self.backend) && self.backend == 'rocksdb')"
    redis_only = " || ".join(
        f"(has(self.{key}) && self.{key} != '')" for key in ("redisAddress", "externalStorageNamespace")
    )
    made = "has(self.storage.size) || has(self.storage.storageClassName) || (has(self.storage.accessModes) && size(self.storage.accessModes) > 0)"
    return [
        rule(
            f"!{is_rocksdb} || !({redis_only} || has(self.redisUsername) || has(self.redisPassword))",
            "redisAddress, redisUsername, redisPassword and externalStorageNamespace must not be set for backend rocksdb; remove them",
        ),
        rule(
            f"{is_rocksdb} || !has(self.storage)",
            "storage must not be set unless backend is rocksdb; set backend to rocksdb, or remove it",
        ),
        rule(
            f"!{is_rocksdb} || !has(self.storage) || !has(self.storage.claimName) || self.storage.claimName == '' || !({made})",
            "storage.size, storageClassName and accessModes must not be set together with storage.claimName; remove one or the other",
        ),
    ]


def autoscaler_rules() -> list[Rule]:
    """Autoscaler options: V-40."""
    return [
        rule(
            "!has(self.env) || !self.env.exists(e, has(e.name) && e.name == 'KUBERAY_GEN_AUTOSCALER_START_CMD')",
            "env must not set KUBERAY_GEN_AUTOSCALER_START_CMD, which the operator sets; remove it",
        )
    ]


def auth_rules() -> list[Rule]:
    """Authentication: V-52, V-53."""
    is_delegated = "(has(self.enableK8sTokenAuth) && self.enableK8sTokenAuth)"
    return [
        rule(
            f"!{is_delegated} || (has(self.mode) && self.mode == 'token')",
            "mode must be token if enableK8sTokenAuth is true",
        ),
        rule(
            f"!{is_delegated} || !has(self.secretName) || self.secretName == ''",
            "secretName must not be set if enableK8sTokenAuth is true; remove one of the two",
        ),
    ]


def spec_rules() -> list[Rule]:
    """Rules across fields of spec: V-14, V-15, V-18 to V-20, V-32, V-34 to V-38, V-48 to V-51."""
    return [*_v2_rules(), *_autoscaling_rules(), *_fault_tolerance_and_head_rules(), *_token_rules()]


def _v2_rules() -> list[Rule]:
    by_env = head_has_env("e.name == 'RAY_enable_autoscaler_v2' && has(e.value) && e.value in ['1', 'true']")
    return [
        *unless_before(
            f"!{any_group('has(g.idleTimeoutSeconds)')} || {V2_BY_FIELD} || {by_env}",
            "workerGroupSpecs[].idleTimeoutSeconds must not be set without autoscaler v2; set autoscalerOptions.version to v2, or remove it",
            fieldPath=".workerGroupSpecs",
        ),
        *unless_before(
            f"!{any_group('has(g.priority) && g.priority != 0')} || "
            f"((has(self.rayVersion) && self.rayVersion.matches('{SINCE_2_56}')) && ({V2_BY_FIELD} || {by_env}))",
            "workerGroupSpecs[].priority must not be set without rayVersion 2.56.0 or newer and autoscaler v2 (autoscalerOptions.version); set both, or remove it",
            fieldPath=".workerGroupSpecs",
        ),
    ]


def _autoscaling_rules() -> list[Rule]:
    v2_on = head_has_env("e.name == 'RAY_enable_autoscaler_v2' && has(e.value) && e.value in ['1', 'true']")
    v2_set = head_has_env("e.name == 'RAY_enable_autoscaler_v2'")
    restarts = "has({0}.template) && has({0}.template.spec) && has({0}.template.spec.restartPolicy) && !({0}.template.spec.restartPolicy in ['', 'Never'])"
    return [
        *unless_before(
            f"{IS_AUTOSCALED} || !{v2_on}",
            "must not set RAY_enable_autoscaler_v2 without an autoscaler; set enableInTreeAutoscaling to true",
            fieldPath=".headGroupSpec",
        ),
        *unless_before(
            f"!{IS_AUTOSCALED} || !{any_group('has(g.suspend) && g.suspend')}",
            "workerGroupSpecs[].suspend must not be true while enableInTreeAutoscaling is true; set one of the two to false",
            fieldPath=".workerGroupSpecs",
        ),
        *unless_before(
            f"!{IS_AUTOSCALED} || !has(self.autoscalerOptions) || !has(self.autoscalerOptions.version) || !{v2_set}",
            "must not set RAY_enable_autoscaler_v2 together with autoscalerOptions.version; remove the variable",
            fieldPath=".headGroupSpec",
        ),
        *unless_before(
            f"!({IS_AUTOSCALED} && {V2_BY_FIELD}) || !((has({HEAD}) && {restarts.format(HEAD)}) || {any_group(restarts.format('g'))})",
            "template.spec.restartPolicy must be Never or unset in every group: autoscaler v2 replaces pods",
        ),
    ]


def _fault_tolerance_and_head_rules() -> list[Rule]:
    has_options = "has(self.gcsFaultToleranceOptions)"
    parameter = f"(has({HEAD}) && has({HEAD}.rayStartParams) && '{{0}}' in {HEAD}.rayStartParams && {HEAD}.rayStartParams['{{0}}'] != '')"
    beside = head_has_env("e.name in ['REDIS_PASSWORD', 'RAY_REDIS_ADDRESS']")
    user = head_has_env("e.name == 'REDIS_USERNAME'")
    return [
        *unless_before(
            f"!{has_options} || !({parameter.format('redis-password')} || {beside})",
            "must not set the Redis address or password together with gcsFaultToleranceOptions; set redisAddress and redisPassword there",
            fieldPath=".headGroupSpec",
        ),
        *unless_before(
            f"!({parameter.format('redis-username')} || {user})",
            "must not set the Redis user name; set gcsFaultToleranceOptions.redisUsername instead",
            fieldPath=".headGroupSpec",
        ),
    ]


def _token_rules() -> list[Rule]:
    is_authenticated = "(has(self.authOptions) && has(self.authOptions.mode) && self.authOptions.mode == 'token')"
    is_delegated = "(has(self.authOptions.enableK8sTokenAuth) && self.authOptions.enableK8sTokenAuth)"
    return [
        *unless_before(
            f"!{is_authenticated} || (has(self.rayVersion) && self.rayVersion.matches('{SINCE_2_52}'))",
            "must be 2.52.0 or newer for authOptions.mode token; set it, or disable authentication",
            fieldPath=".rayVersion",
        ),
        *unless_before(
            f"!{is_authenticated} || !{is_delegated} || (has(self.rayVersion) && self.rayVersion.matches('{SINCE_2_55}'))",
            "must be 2.55.0 or newer for authOptions.enableK8sTokenAuth",
            fieldPath=".rayVersion",
        ),
    ]
