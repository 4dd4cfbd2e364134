"""Diagnosis: why a workload has fewer pods than it wants, as a value, with one catalogue of texts, holders and fixes."""
