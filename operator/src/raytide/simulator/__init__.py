"""Simulator: what the operator and kube-scheduler would do next with the objects of a cluster, and after a change of them."""
