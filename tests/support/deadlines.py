"""How much longer than it should may something take here?"""

import os

PATIENCE = float(os.environ.get("RAYTIDE_TEST_PATIENCE") or 1)
"""Factor of deadlines, for machines that do other things at the same time. `.ci/run` doubles them for what runs beside something."""
