"""Whether the head service selects the head pod.

Takes the observed service and heads and returns the Warning events about a selector that reaches no head pod: it was edited, or the head has
another value of a label that it names. The operator creates services and does not change them (RC:HS-1), so the events have
what to delete. Pure; called by plan.py (RC:HS-3, FD:RC3-4).
"""

from collections.abc import Mapping

from raytide.api import constants
from raytide.api.actions import EventSpec
from raytide.api.pod import PodView
from raytide.api.raycluster import RayCluster
from raytide.raycluster import messages
from raytide.raycluster.manifests.services import head_selector
from raytide.raycluster.observed import Observed


def head_service_events(cluster: RayCluster, observed: Observed) -> tuple[EventSpec, ...]:
    """The event about a selector that reaches no head pod, or selects other pods, too."""
    service = observed.head_service
    if service is None:
        return ()
    selector = dict(service.selector)
    fixed = {constants.CLUSTER_LABEL: service.cluster, constants.NODE_TYPE_LABEL: constants.HEAD}
    if not (fixed.items() <= selector.items() and selector.keys() <= constants.HEAD_SELECTOR_KEYS):
        return (messages.head_service_changed(service.name),)
    heads = [head for head in observed.heads if head.head_labels and not head.is_terminating]
    label = _other_label(selector, heads[0]) if heads else ""
    if not label or any(not _other_label(selector, head) for head in heads[1:]):
        return ()
    head, has = heads[0], dict(heads[0].head_labels).get(label)
    would_be_selected = not _other_label(head_selector(cluster), head)
    event = messages.head_not_selected(
        service.name, head.name, label, selector[label], has, is_service_outdated=would_be_selected
    )
    return (event,)


def _other_label(selector: Mapping[str, str], head: PodView) -> str:
    """A label of the selector of which the pod has another value; empty if the selector selects the pod."""
    labels = dict(head.head_labels)
    return next((label for label, value in sorted(selector.items()) if labels.get(label) != value), "")
