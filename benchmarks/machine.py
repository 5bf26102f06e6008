"""On what the figures were measured."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

_CPU_INFO = Path("/proc/cpuinfo")


def machine() -> dict[str, str]:
    """Return processor, cores, memory and the versions that matter."""
    packages = {name: version(name) for name in ("pyspark", "pyarrow", "pyiceberg")}
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        **packages,
    }


def machine_line() -> str:
    """Return the machine as one sentence."""
    return f"Measured on: {', '.join(f'{key} {value}' for key, value in machine().items())}."


def _cpu() -> str:
    lines = _CPU_INFO.read_text().splitlines() if _CPU_INFO.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
