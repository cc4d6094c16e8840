"""Print the lower bounds of the dependencies, as constraints for pip. `.ci/long lowest` installs them."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests._packages import declared, extras_of


def bounds() -> str:
    """One line for each: ``name==version``."""
    found = {
        name: line.partition(">=")[2].partition(",")[0]
        for extra in (None, *extras_of())
        for name, line in declared(extra).items()
    }
    return "\n".join(f"{name}=={version}" for name, version in sorted(found.items()))


if __name__ == "__main__":
    print(bounds())
