"""Fields of Paddle's controllers without effect are named; those that mean nothing are not (TJ §2.1)."""

import pytest

from raytide.api.trainingjob import TrainingJob
from raytide.trainingjob.validation import unsupported


def job(trainer=None, **spec):
    given = {"trainer": {"min-instance": 1, **(trainer or {})}, **spec}
    return TrainingJob.parse({"metadata": {"name": "job", "namespace": "ns"}, "spec": given})


NAMED = {
    "spec.trainer_port": {"trainer_port": 8000},
    "spec.trainer_ports_num": {"trainer_ports_num": 2},
    "spec.local_job": {"local_job": True},
    "spec.mountpath": {"mountpath": "/data"},
    "spec.mountPath": {"mountPath": "/data"},
    "spec.nfsmount": {"nfsmount": "nfs:/data"},
    "spec.namespace": {"namespace": "other"},
    "spec.is_nccl": {"is_nccl": True},
    "spec.frame_work": {"frame_work": {"name": "tensorflow", "type": "multi"}},
    "spec.matrix": {"matrix": True},
    "spec.annotations.usergroupid": {"annotations": {"usergroupid": "7"}},
    "spec.annotations.userid": {"annotations": {"userid": "7"}},
    "spec.annotations.priority": {"annotations": {"priority": "high"}},
    "spec.annotations.scheduler": {"annotations": {"scheduler": "kube-batch"}},
    "spec.trainer.etcd-endpoint": {"trainer": {"etcd-endpoint": "etcd:2379"}},
    "spec.pserver.replicaSpec": {"pserver": {"min-instance": 1, "replicaSpec": {"kind": "ReplicaSet"}}},
    "spec.trainer.index_succeed": {"trainer": {"index_succeed": True}},
}


@pytest.mark.rule("TJ:2.1")
@pytest.mark.parametrize(("field", "spec"), NAMED.items(), ids=NAMED)
def test_a_field_without_effect_is_named(field, spec):
    (one,) = unsupported(job(**spec))
    assert one.field == field
    assert one.message


MEANINGLESS = {
    "Go's zeros": {
        "trainer_port": 0,
        "local_job": False,
        "mountpath": "",
        "frame_work": None,
        "annotations": {"priority": "", "walltime": 60},
        "trainer": {"etcd-endpoint": "", "replicaSpec": None, "index_succeed": False},
    },
    "the framework that ours is": {"frame_work": {"name": "paddle", "type": "multi"}},
    "a framework of empty words": {"frame_work": {"name": "", "type": ""}},
    "the namespace it is in": {"namespace": "ns"},
}


@pytest.mark.parametrize("spec", MEANINGLESS.values(), ids=MEANINGLESS)
def test_fields_without_an_effect_are_not_named(spec):
    assert unsupported(job(**spec)) == ()


def test_frame_work_is_reported_if_framework_names_another():
    fields = [one.field for one in unsupported(job(frame_work={"name": "paddle"}, framework="torchrun"))]
    assert fields == ["spec.frame_work"]
