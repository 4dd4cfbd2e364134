"""CEL rules of the TrainingJob CRD.

Each function returns the `x-kubernetes-validations` of one path in the schema. They are the rules of
`raytide.trainingjob.validation` that the API server can compute; stored objects stay editable (`crd_parts.unless_before`). Of two
spellings of a number the first one takes precedence. Used by trainingjob_schema.py.
"""

from crd_parts import DNS_1035_MESSAGE, Rule, rule, unless_before

MAX_HOST_NAME = 63
TRAINER_INFIX = "-trainer-"
NAME_PATTERN = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
MAX_PORT = 65535
DEFAULT_PORT = 7164


def field(spelled: str) -> str:
    """A field in the syntax of CEL."""
    return f"self.{spelled.replace('-', '__dash__')}"


def first_of(one: str, other: str, otherwise: str) -> str:
    """The value of a field with two spellings, `otherwise` if it has neither."""
    return f"(has({field(one)}) ? {field(one)} : (has({field(other)}) ? {field(other)} : {otherwise}))"


LOW = first_of("min-instance", "minInstance", "0")
HIGH = first_of("max-instance", "maxInstance", LOW)
TRAINER_LOW, TRAINER_HIGH = LOW.replace("self.", "self.trainer."), HIGH.replace("self.", "self.trainer.")


def set_only_once(one: str, other: str) -> list[Rule]:
    """Two spellings of a field must be equal if both are set."""
    a, b = field(one), field(other)
    return unless_before(
        f"!has({a}) || !has({b}) || {a} == {b}",
        f"must be equal to {one}, which is another spelling of this field; keep one of them",
        fieldPath=f".{other}",
    )


def name_rules() -> list[Rule]:
    """The name is also that of a service, and the prefix of host names."""
    return [rule(f"self.matches('{NAME_PATTERN}')", DNS_1035_MESSAGE)]


def root_rules() -> list[Rule]:
    """The object: it has a spec, and the longest name of a trainer is a valid host name."""
    low, high = TRAINER_LOW.replace("self.", "self.spec."), TRAINER_HIGH.replace("self.", "self.spec.")
    max_length = MAX_HOST_NAME - len(TRAINER_INFIX)
    most = f"({high} > {low} ? {high} : {low})"
    return [
        rule(
            "oldSelf.hasValue() || has(self.spec)",
            "must set at least trainer",
            optionalOldSelf=True,
            fieldPath=".spec",
            reason="FieldValueRequired",
        ),
        *unless_before(
            f"!has(self.spec) || !has(self.spec.trainer) || size(self.metadata.name) + size(string({most})) <= {max_length}",
            f"metadata.name, '{TRAINER_INFIX}' and the number of trainers must be no more than {MAX_HOST_NAME} characters in total; shorten the name",
        ),
    ]


def instances_rules(*, at_least: int) -> list[Rule]:
    """A role with a minimum and a maximum of pods: trainers and parameter servers."""
    return [
        *unless_before(
            f"has({field('min-instance')}) || has({field('minInstance')})",
            "must be set: the minimum number of pods",
            fieldPath=".min-instance",
        ),
        *unless_before(
            f"{LOW} >= {at_least}", f"must be greater than or equal to {at_least}", fieldPath=".min-instance"
        ),
        *unless_before(f"{LOW} <= {HIGH}", "must be less than or equal to max-instance", fieldPath=".min-instance"),
        *set_only_once("min-instance", "minInstance"),
        *set_only_once("max-instance", "maxInstance"),
        *set_only_once("node_selector", "nodeSelector"),
        *set_only_once("grace_period_seconds", "gracePeriodSeconds"),
    ]


def spec_rules() -> list[Rule]:
    """Rules across fields of spec."""
    is_fixed = " && ".join(f"!(has({field(name)}) && !{field(name)})" for name in ("fault_tolerant", "faultTolerant"))
    ports = " + ".join(
        first_of(one, other, "1")
        for one, other in (("ports_num", "portsNum"), ("ports_num_for_sparse", "portsNumForSparse"))
    )
    sizes = "self.scaling.allowedSizes"
    has_sizes = f"has(self.scaling) && has({sizes})"
    return [
        *unless_before(
            f"!has(self.trainer) || {TRAINER_LOW} >= {TRAINER_HIGH} || ({is_fixed})",
            "must not be false unless min-instance and max-instance of trainer are equal",
            fieldPath=".fault_tolerant",
        ),
        *unless_before(
            f"!has(self.trainer) || !({has_sizes}) || {sizes}.all(s, s >= {TRAINER_LOW} && s <= {TRAINER_HIGH})",
            "every size must be between min-instance and max-instance of trainer",
            fieldPath=".scaling.allowedSizes",
        ),
        *unless_before(
            f"(has(self.port) ? self.port : {DEFAULT_PORT}) + {ports} - 1 <= {MAX_PORT}",
            f"port + ports_num + ports_num_for_sparse - 1 must be less than or equal to {MAX_PORT}",
            fieldPath=".port",
        ),
        *set_only_once("ports_num", "portsNum"),
        *set_only_once("ports_num_for_sparse", "portsNumForSparse"),
        *set_only_once("fault_tolerant", "faultTolerant"),
        *set_only_once("host_network", "hostNetwork"),
    ]
