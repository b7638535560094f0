"""A load of simulated work, from a catalog of its own; the same seed makes the same jobs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

CATALOG = """
[kinds.mail]
duration = "2ms"
weight = 3

[kinds.webhook]
duration = { median = "5ms", p99 = "50ms" }
outcomes = { success = 80, fail = 20 }
attempts = 2
rest = "50ms"

[kinds.report]
duration = { from = "20ms", to = "60ms" }
outcomes = { success = 90, cancel = 10 }
steps = 4
queue = "reports"
priority = "low"
"""


def load(*options: str) -> dict[str, Any]:
    """Run `holdfast load kinds.toml` and return its report."""
    command = [sys.executable, "-m", "holdfast", "load", "kinds.toml", "--json", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603  our own program
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main() -> None:
    Path("kinds.toml").write_text(CATALOG)
    for seed in ("7", "7", "8"):
        report = load("--rate", "200", "--jobs", "100", "--seed", seed, "--chart", "load.svg")
        print(f"seed {seed}: {report['ended']} of {report['enqueued']} ended")
        for name, kind in report["kinds"].items():
            print(f"  {name}: {kind['succeeded']} succeeded, {kind['failed']} failed, {kind['canceled']} canceled")


if __name__ == "__main__":
    main()
