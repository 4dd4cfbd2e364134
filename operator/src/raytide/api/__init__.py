"""Values and constants of both kinds, and the actions of a plan; imports nothing else of raytide."""
