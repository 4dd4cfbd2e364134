"""How much longer than it should may something take here?"""

import os

PATIENCE = float(os.environ.get("RAYTIDE_TEST_PATIENCE") or 1)
"""Factor of deadlines and of bars in seconds, for machines that do other things at the same time; e2e/ has the same variable."""
