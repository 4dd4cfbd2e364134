"""Reasons, log lines, events for drivers, metrics, and the report for `ray status`."""
