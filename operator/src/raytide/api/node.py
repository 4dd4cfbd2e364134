"""What do we need to know about a node?

Takes a node as JSON and says whether it answers. Nothing else is kept: capacity is somebody else's question. Made by the
informer where nodes can be read, used to know which dying pods will never finish dying (SC:S12).
"""

from sys import intern

import msgspec


class NodeView(msgspec.Struct, frozen=True, gc=False):
    """One node; no Ready condition means that nobody has said it is away."""

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
    """Whether pods on this node have to be looked at again.

    A node that was not known counts as ready until now: one that is first seen NotReady is a change, because the operator
    may have started after the node died (FD:REL-A). A node that was deleted does not answer any more (FD:RC-B10).
    """
    return (old is None or old.is_ready) != (new is not None and new.is_ready)
