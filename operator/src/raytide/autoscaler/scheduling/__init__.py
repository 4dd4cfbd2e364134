"""Launches and terminations for the demand, and the demand that stays pending or is infeasible."""
