"""Child lister: the children of one kind, as the informers hold them and with our in-flight writes applied.

Takes the informers of one kind of children and creates their expectations; returns the views of one owner to plan with
(D6). Used by the controllers' reconcilers; an `ActionRunner` records writes in the expectations.
"""

from collections.abc import Sequence
from typing import Final, Generic, Protocol, Self, TypeVar

from raytide.api.meta import Key
from raytide.controller.expectations import Expectations, ViewDecoder
from raytide.kube.informer import Informer
from raytide.runtime.clock import Clock

IN_FLIGHT: Final = "-"
"""deletionTimestamp shown for a child whose deletion was requested but has not reached the informer yet."""


class ChildView(Protocol):
    """Fields that the view of every child has."""

    @property
    def name(self) -> str:
        """Object name."""

    @property
    def uid(self) -> str:
        """Object uid; empty until the API server has assigned it."""

    @property
    def owner_uid(self) -> str:
        """Uid of the controlling owner; empty when it has none."""

    @property
    def resource_version(self) -> str:
        """Its resourceVersion, as the API server returned it."""

    def marked_terminating(self, at: str) -> Self:
        """Return a copy with a deletion in flight."""
        ...


C = TypeVar("C", bound=ChildView)


class ChildLister(Generic[C]):
    """Children of one kind, by owner.

    - The informers together hold all children of the kind, indexed by the key of the owner that their labels name.
    - `seen` returns what they hold; `expected` applies the writes in flight to the children of one uid. An earlier owner of
      the same name has other children of the same names, which do not settle those writes.
    """

    def __init__(self, clock: Clock, decoder: ViewDecoder[C], *informers: Informer[C]) -> None:
        self.resource = informers[0].resource
        self._informers = informers
        self.in_flight: Expectations[C] = Expectations(
            clock=clock,
            reader=decoder,
            version_of=lambda view: view.resource_version,
            name_of=lambda view: view.name,
            uid_of=lambda view: view.uid,
            as_terminating=lambda view: view.marked_terminating(IN_FLIGHT),
            informer_version=lambda namespace: min(informer.version_in(namespace) for informer in informers),
            ask_relist=self._relist,
        )

    def seen(self, key: Key) -> Sequence[C]:
        """Children whose labels name that owner, as the informers hold them."""
        return [view for informer in self._informers for view in informer.by_index(key)]

    def expected(self, key: Key, uid: str) -> tuple[C, ...]:
        """Those of that uid with writes in flight applied, then those of other owners."""
        mine: list[C] = []
        others: list[C] = []
        for view in self.seen(key):
            (mine if view.owner_uid == uid else others).append(view)
        return (*self.in_flight.overlay(key, uid, mine), *others)

    def arriving(self, key: Key, uid: str) -> tuple[C, ...]:
        """Those of that uid whose abandoned create may still be carried out (D6)."""
        return self.in_flight.arriving(key, uid)

    def get(self, namespace: str, name: str) -> C | None:
        """One child of any owner, as the informers hold it."""
        return next((view for informer in self._informers if (view := informer.get(namespace, name))), None)

    def _relist(self) -> None:
        for informer in self._informers:
            informer.relist()
