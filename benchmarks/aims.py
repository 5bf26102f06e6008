"""Aims of the benchmarks: the options that all of them share, and their report, as a table or as JSON.

Every benchmark states its aims as code. `--check` prints each aim with the measured figure and whether it is
met, and makes the exit code 1 on a miss; an aim that a short run did not measure is not met. `--json` alone
prints the JSON to standard output and everything else to standard error; `--json FILE` writes a file.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import machine, machine_line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_STDOUT = "-"


@dataclass(frozen=True, kw_only=True)
class Aim:
    """One figure that a benchmark must reach."""

    what: str
    bound: float
    measured: float | None
    """None if this run did not measure it."""
    at_least: bool = False
    """The figure must be at least the bound, instead of at most."""

    @property
    def met(self) -> bool:
        """Whether the figure was measured, and reaches the bound."""
        if self.measured is None:
            return False
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def as_dict(self) -> dict[str, Any]:
        """Return plain values that `json.dumps` takes."""
        return {
            "aim": self.what,
            "bound": f"{'>=' if self.at_least else '<='} {self.bound:g}",
            "measured": self.measured,
            "met": self.met,
        }


def benchmark_parser(module: str, description: str | None, quick: str) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has; `quick` says what the short run measures."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--check", action="store_true", help="print each aim; exit with 1 if one is missed")
    parser.add_argument(
        "--json", nargs="?", const=_STDOUT, metavar="FILE", help="write all figures as JSON; default: stdout"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there")
    parser.add_argument(
        "--work", type=Path, help="a folder on the disk to be measured; default: the temporary one"
    )
    return parser


def conclude(
    options: argparse.Namespace,
    introduction: str,
    tables: Sequence[str],
    figures: Mapping[str, Any],
    aims: Sequence[Aim],
) -> int:
    """Print the machine and the tables, write what the options ask for, and return the exit code."""
    text = "\n\n".join([f"{machine_line()} {introduction}".strip(), *tables])
    if options.markdown:
        options.markdown.write_text(text + "\n")
    shown = f"{text}\n\n{aims_table(aims)}" if options.check else text
    print(shown, file=sys.stderr if options.json == _STDOUT else sys.stdout)
    if options.json is not None:
        data = json.dumps({"machine": machine(), "aims": [aim.as_dict() for aim in aims], **figures})
        if options.json == _STDOUT:
            print(data)
        else:
            Path(options.json).write_text(data + "\n")
    return 1 if options.check and not all(aim.met for aim in aims) else 0


def aims_table(aims: Sequence[Aim]) -> str:
    """Return the aims as a table: bound, figure, and whether the figure meets the bound."""
    lines = ["| aim | bound | measured | met |", "| --- | ---: | ---: | --- |"]
    for aim in aims:
        stated = aim.as_dict()
        measured = "not measured" if aim.measured is None else f"{aim.measured:.3g}"
        lines.append(f"| {aim.what} | {stated['bound']} | {measured} | {'yes' if aim.met else 'NO'} |")
    return "\n".join(lines)
