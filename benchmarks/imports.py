"""What importing agentor costs, as ratios to a bare interpreter start in the same run.

python benchmarks/imports.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

CASES = {
    "bare": "pass",
    "import agentor": "import agentor",
    "from agentor import Agentor": "from agentor import Agentor",
    "import typer, rich": "import typer, rich",
}


def seconds(code: str) -> float:
    """One cold start."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - started


def main() -> None:
    """Print the table: medians of eleven interleaved starts."""
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(11):
        for name, code in CASES.items():
            times[name].append(seconds(code))
    bare = statistics.median(times["bare"])
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"{name:<28} {1000 * median:7.1f} ms   {median / bare:5.2f} x bare")


if __name__ == "__main__":
    main()
