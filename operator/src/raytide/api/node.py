"""View of a node's readiness.

Decodes a node's JSON into its name and whether it is ready; capacity is in capacity.py. Created by the informer where
nodes can be read, used to find terminating pods that no kubelet will finish (SC:S12).
"""

from sys import intern

import msgspec


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """One node; without a Ready condition it counts as ready."""

    name: str
    is_ready: bool


class _Meta(msgspec.Struct, gc=False):
    name: str = ""


class _Condition(msgspec.Struct, gc=False):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct, gc=False):
    conditions: list[_Condition] | None = None


class _Document(msgspec.Struct, gc=False):
    metadata: _Meta
    status: _Status | None = None


_decoder = msgspec.json.Decoder(_Document)


def decode_node(document: bytes | msgspec.Raw) -> NodeView:
    """The view of one node's JSON; raises msgspec.MsgspecError when it is not a node."""
    node = _decoder.decode(document)
    conditions = (node.status.conditions if node.status else None) or ()
    is_ready = all(condition.status == "True" for condition in conditions if condition.type == "Ready")
    return NodeView(intern(node.metadata.name), is_ready)


def has_readiness_changed(old: NodeView | None, new: NodeView | None) -> bool:
    """Whether the owners of pods on this node must be reconciled.

    An unknown node counts as ready: a node first seen NotReady is a change, because it may have failed before the
    operator started (FD:REL-A). A deleted node counts as not ready (FD:RC-B10).
    """
    return (old is None or old.is_ready) != (new is not None and new.is_ready)
