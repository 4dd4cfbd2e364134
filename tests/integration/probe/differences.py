"""Accepted differences between the embedded API and a real one, with their reasons.

Everything the probe's questions bring to light and that stays: by question, then by place (a regular expression over the
whole place), a reason. A difference that is not listed here fails the probe, and so does an entry that no longer matches
any: what was fixed is taken out.
"""

OWNED = (
    "who owns a field that the server filled in, or the inside of an owner reference, concerns no client that applies"
)
GO_TEXT = "the words of Go's own decoder; status and reason are the same"
SAYS_WHICH = "the sandbox says which operation failed; a real server keeps it to itself"
NO_QUOTA = "the sandbox counts no quota; tests of rejections by quota run on the real control plane"
NO_LIMITS = "the sandbox applies no LimitRange"
NO_POLICY = "the sandbox runs no policies"
CLIENTS_FAULT = "a real server calls this fault of the client its own (500); the sandbox says 400"
NEW_LIFE = "a sandbox may restart with lower versions: clients that have higher ones must relist"

LISTED: dict[str, dict[str, str]] = {
    "what guards a status write": {r"a JSON patch that tests the uid\.body\.details\.causes": SAYS_WHICH},
    "what a deletion answers": {
        r"of a pod without a node\.body\.metadata\.generation": "the last response about a deleted pod; no client continues from it",
    },
    "what a pod becomes": {r".*\.fieldsV1\.f:spec\.f:enableServiceLinks": OWNED},
    "what other objects become": {
        r"a PUT of a lease that is not there\.body\.metadata\.managedFields": OWNED,
        r"a claim\.body\.metadata\.finalizers": "the controller that takes pvc-protection off again is not in the sandbox",
        r".*\.fieldsV1\.f:spec\.f:ipFamil(ies|yPolicy)": OWNED,
        r'.*\.f:ownerReferences\.k:\{"uid":"UID2"\}\.f:\w+': OWNED,
    },
    "what is wrong with metadata": {
        r"a finalizer without a domain of a RayCluster\.headers\.warning": "advice that the sandbox does not give",
        r"a version of a (Pod|RayCluster)\.(status|body\.(code|reason))": CLIENTS_FAULT,
    },
    "what is wrong with a pod": {
        r"another command\.body\.(message|details\.causes\[0\]\.message)": "a real server appends a diff of Go structures",
    },
    "what patches do": {
        r"a JSON patch of what is not there\.body\.details\.causes": SAYS_WHICH,
        r"a JSON patch that is no list\.body\.message": GO_TEXT,
        r"a merge patch that is no JSON\.body\.message": GO_TEXT,
        r"what the schema forbids\.body\.(message|details\.causes)": "a kind with a scale endpoint judges replicas twice",
    },
    "rejections by a quota": {r".*\.(status|body)": NO_QUOTA},
    "rejections by a limit range": {r".*\.(status|body)": NO_LIMITS},
    "rejections by an admission policy": {r".*\.(status|body)": NO_POLICY},
    "what a list looks like": {r"after a token that is none\.body\.message": GO_TEXT},
    "what selectors are rejected": {
        r"of labels\.body\.message": "the words of Go's own parser; status and reason are the same"
    },
    "what is not served": {
        r"another kind\.body\.message": GO_TEXT,
        r"another version\.headers\.warning": "a real server warns of unknown fields of an object that it rejects anyway",
        r"no JSON\.body\.message": GO_TEXT,
        r"no group\.(body|headers\.content-type)": "a group that is not served is a page in plain text; the status is the same",
        r"no kind\.body\.details": "empty details",
        r"no method\.(status|body\.\w+)": "a PUT of a collection: 400 there, 405 here",
    },
    "how watches begin": {
        r"at a version to come": NEW_LIFE,
        r"at no version\.(status|body\.(code|reason))": CLIENTS_FAULT,
    },
}
"""Question -> place -> reason."""
