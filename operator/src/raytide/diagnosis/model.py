"""A diagnosis: one cause for which a workload has fewer pods than it wants, decided once and passed on as fields.

The autoscaler, the sharing pass and the controllers return a `Diagnosis` for the cause that they find. It is stored in the decision
records with its fields, and becomes a text only where a person reads it, by catalogue.py, so that no program has to read a
sentence of another one. Pure values; imports nothing of raytide.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

PARAMETERS: Final = frozenset(
    {
        "container",
        "controller",
        "gates",
        "holder",
        "label",
        "limit",
        "maximum",
        "most",
        "node",
        "nodes",
        "pod",
        "queue",
        "quota",
        "resource",
        "selector",
        "shapes",
        "tenant",
        "unsupported",
        "until",
        "writer",
    }
)
"""Names of parameters that the catalogue's texts have; a record's others are not read."""


class Stage(StrEnum):
    """A step from the demand to running pods; a blocker at one of them stops all that follow."""

    DEMAND = "demand"
    DECISION = "decision"
    WANTED = "wanted"
    PODS = "pods"
    NODES = "nodes"


@dataclass(frozen=True, slots=True)
class Workload:
    """The RayCluster or TrainingJob that a diagnosis is about."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One cause: a reason of the catalogue, and what its texts name."""

    reason: str
    """A condition's reason; one that the catalogue does not have is shown with its message alone."""
    count: int = 0
    """How many requests, workers or pods it concerns; 0: not known."""
    message: str = ""
    """What Kubernetes, Ray or the sharing pass says; empty where the catalogue has the text."""
    group: str = ""
    """Worker group or role; empty: the whole workload."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What the texts of the reason name, by a name of PARAMETERS."""
    stage: Stage | None = None
    """Where it stops the workload, for a reason that stops others elsewhere; None: that of the catalogue."""

    def having(self, **parameters: str) -> "Diagnosis":
        """The same with these parameters too, which have names of PARAMETERS; empty ones are left out."""
        if not parameters.keys() <= PARAMETERS:
            raise ValueError(f"a record would not keep the parameters {sorted(parameters.keys() - PARAMETERS)}")
        return replace(
            self, parameters={**self.parameters, **{name: text for name, text in parameters.items() if text}}
        )
