"""What the commands of the command line share: exit codes, output, and arguments of the form KEY=VALUE."""

from __future__ import annotations

import argparse
import sys

DONE, FINDINGS, CANNOT = 0, 1, 2
"""Exit codes: all is well; there is something to repair; could not look, or (argparse's) was misasked."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


class KeyValue(argparse.Action):
    """Collects KEY=VALUE arguments in a dict; None where there are none."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        key, separator, value = str(values).partition("=")
        if not separator:
            parser.error(f"{option_string} takes KEY=VALUE, not {values!r}")
        setattr(namespace, self.dest, {**(getattr(namespace, self.dest) or {}), key: value})
