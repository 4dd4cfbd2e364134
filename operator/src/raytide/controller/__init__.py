"""Work queue, reconcile loop, expectations, action executor, status writer: the counterpart of controller-runtime."""
