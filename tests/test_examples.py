"""Examples run, and the documentation shows what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_start_in_the_readme_is_the_example_and_prints_what_it_says(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text()
    code, printed = re.search(r"## 60-second start.*?```python\n(.*?)```.*?```\n(.*?)```", readme, re.DOTALL).groups()  # type: ignore[union-attr]
    example = ROOT / "examples/store.py"
    assert code in example.read_text()
    done = subprocess.run([sys.executable, example], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.rstrip() for line in done.stdout.splitlines()] == printed.splitlines()
