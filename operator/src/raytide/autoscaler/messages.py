"""Log lines of the sidecar's process, loop and connections.

One function per line; each returns the text, the caller chooses the level. Lines about decisions, which are also in the
record, in events and in conditions, are in reporting/messages.py and scaling/limit_reasons.py. Pure, and without imports,
so that every module of the sidecar can use it. Called by main.py, loop.py, provider.py, node_events.py and supervisor.py.
"""

# --- supervisor ------------------------------------------------------------------------------------------------------


def process_ended(exit_code: int, delay_s: float) -> str:
    """The child ended, and is restarted after `delay_s`; a negative code is a signal."""
    how = f"exit code {exit_code}" if exit_code >= 0 else f"signal {-exit_code}"
    return f"the autoscaler process ended with {how}, restarting it in {delay_s:g} s"


def process_not_started(error: OSError) -> str:
    """The child could not be spawned."""
    return f"cannot start the autoscaler process: {error}"


def process_killed(grace_s: float) -> str:
    """The child ran beyond its grace period."""
    return f"the autoscaler process did not end within {grace_s:g} s of the termination signal, killing it"


# --- process ---------------------------------------------------------------------------------------------------------


def setting_without_effect(variable: str, why: str) -> str:
    """A variable of Ray's autoscaler is set that this one does not use."""
    return f"{variable} is set and has no effect: {why}"


def not_in_pod(variable: str) -> str:
    """The process was started outside a pod."""
    return (
        f"not running in a pod ({variable} is not set): raytide autoscaler runs in head pods, to which the operator adds it if "
        "spec.enableInTreeAutoscaling of the RayCluster is true; raytide why shows from anywhere why a RayCluster does not scale"
    )


def started(version: str, cluster: object, gcs_address: str) -> str:
    """First line of a process."""
    return f"raytide autoscaler {version} of RayCluster {cluster}, GCS at {gcs_address}"


def shutting_down() -> str:
    """SIGTERM, SIGINT, or the end of the supervisor."""
    return "shutting down: received a termination signal, or the supervisor ended"


def credentials_rejected(error: object) -> str:
    """Only a new process reads all credentials again (L-6)."""
    return f"the GCS rejects the credentials, restarting the process to read them again: {error}"


def process_failed() -> str:
    """Logged with the traceback."""
    return "unexpected error, restarting the autoscaler process"


def page_not_served(what: str, error: OSError) -> str:
    """A port is in use."""
    return f"{what} not served: cannot listen: {error}"


def log_file_not_written(path: object, error: OSError) -> str:
    """`monitor.log` or the event file."""
    return f"cannot write {path} ({error.strerror}): its lines are in the container's output only"


# --- connection to Ray -----------------------------------------------------------------------------------------------


def gcs_connected(ray_version: str) -> str:
    """The first reply of the GCS."""
    return f"connected to the GCS of Ray {ray_version}"


def gcs_starting(address: str) -> str:
    """The first request of a process was not answered."""
    return f"the GCS at {address} does not answer, retrying: Ray may still be starting"


def gcs_missing(address: str, error: object) -> str:
    """The GCS has not answered for a while."""
    return f"the GCS at {address} does not answer, retrying: {error}"


def query_unanswered(consequence: str) -> str:
    """Ray did not answer a query that decisions do not need."""
    return f"{consequence}; retrying until the GCS answers"


def ray_has_v1() -> str:
    """The head was started without autoscaler V2."""
    return "Ray was started with autoscaler V1; Raytide's autoscaler decides like V2 in any case"


def state_missing(error: object) -> str:
    """The GCS does not return the demand."""
    return f"the GCS does not return the cluster state, retrying: {error}"


def state_back() -> str:
    """The first cluster state after `state_missing`."""
    return "the GCS answers again"


def state_invalid(problem: str) -> str:
    """Entries that decisions leave out."""
    return f"ignoring invalid entries in the cluster state from the GCS: {problem}"


def report_failed(error: Exception) -> str:
    """`ray status` shows the previous report until the next tick."""
    return f"the autoscaling state was not reported to Ray, the next tick reports it: {error}"


def drain_unanswered(node_id: str, error: Exception) -> str:
    """A later tick decides again about the node."""
    return f"no answer to the drain request for node {node_id}: {error}"


def request_lost() -> str:
    """A new GCS does not have the constraint of the last `request_resources()`."""
    return "the GCS has lost the constraint of request_resources(), the last known one applies until the next call"


# --- ticks -----------------------------------------------------------------------------------------------------------


def pods_not_listed(error: str) -> str:
    """Why a tick makes no decision."""
    return f"the pods have not been listed yet: {error or 'still listing'}"


def cluster_unreadable(cluster: object, error: Exception) -> str:
    """Why a tick makes no decision."""
    return f"cannot read RayCluster {cluster}: {error}"


def cluster_missing(cluster: object) -> str:
    """Why a tick makes no decision."""
    return f"RayCluster {cluster} does not exist"


def no_decision(why: str) -> str:
    """The first of several ticks of the sidecar that cannot decide for the same kind of reason."""
    return f"no decision is possible, retrying: {why}"


def deciding_again() -> str:
    """The first decision after `no_decision`."""
    return "decisions are possible again"


def no_drains() -> str:
    """The spec that the drains are based on may be outdated."""
    return "no node is drained in this tick: the RayCluster has changed, or cannot be read"


def tick_failed() -> str:
    """Logged with the traceback."""
    return "unexpected error in this tick, the next one starts from scratch"


def listener_failed() -> str:
    """Logged with the traceback."""
    return "metrics, log files or events of this tick are incomplete"


# --- API server ------------------------------------------------------------------------------------------------------


def patch_unknown(error: object) -> str:
    """No response: the patch may have been applied."""
    return f"the result of the patch of the RayCluster is unknown, the next tick decides again: {error}"


def patch_conflict(error: object) -> str:
    """A test operation of the patch failed."""
    return f"conflict, the RayCluster has changed, the next tick decides again: {error}"


def patch_rejected(error: object, status: int, reason: str) -> str:
    """Any other error status."""
    return f"the API server rejected the patch of the RayCluster: {error} ({status} {reason})"


def events_forbidden(error: object) -> str:
    """Events of node autoscalers may not be listed."""
    return (
        "cannot list events of node autoscalers, only RAYTIDE_AUTOSCALER_NODE_AUTOSCALER determines whether there is one: "
        f"{error}"
    )


def events_unavailable(error: object) -> str:
    """Listing events of node autoscalers failed for now."""
    return f"cannot list events of node autoscalers, retrying: {error}"


def node_autoscaler_found(source: str) -> str:
    """The first event of a node autoscaler."""
    return f"{source} adds nodes to this cluster: unschedulable pods wait for its nodes"
