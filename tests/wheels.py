"""The built wheel in a folder of its own, to be used in place of the source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def wheel_in(folder: Path) -> Path:
    """Build the wheel and unpack it as pip does; put the folder on PYTHONPATH."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("agentor-*.whl")
    site = folder / "site"
    where = ["--target", str(site), str(wheel)]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *where]
    subprocess.run(install, check=True, capture_output=True)
    return site
