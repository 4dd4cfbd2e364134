"""How often should Python look for cycles of garbage?

`spare_the_collector` takes what is imported out of its sight and lets more young objects gather before it looks. By
default it looks every 700 objects, which is every five answers of an API server, and walks over a hundred thousand that
kopf and its libraries made for ever: that was a fifth of the CPU of a mass creation. Memory does not grow by it, because
decoded JSON has no cycles and goes as soon as nobody holds it. Called once by the command, when everything is imported.
"""

import gc
from typing import Final

YOUNG_OBJECTS: Final = 20_000
"""About a hundred decoded pods."""
ROUNDS: Final = 20
"""So many looks at one generation before the next older one is looked at too."""


def spare_the_collector() -> None:
    """Look less often, and never at what there is now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, ROUNDS, ROUNDS)
