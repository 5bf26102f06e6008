"""Search every model and tell what was found: `python -m tests.models`; with `-v`, every counterexample."""

from __future__ import annotations

import sys

from tests.models.catalogue import BROKEN, SOUND
from tests.models.checker import explore


def main() -> None:
    write = sys.stdout.write
    width = max(len(str(case)) for case in (*SOUND, *BROKEN))
    write(f"{'model':<{width}} {'states':>7}  shortest way to a violation\n")
    for case in (*SOUND, *BROKEN):
        found = explore(case.model)
        steps = f"{len(found.path)} steps" if found.violation else "none"
        write(f"{case!s:<{width}} {found.states:>7}  {steps}\n")
        if found.violation and "-v" in sys.argv[1:]:
            write(f"{found}\n")


if __name__ == "__main__":
    main()
