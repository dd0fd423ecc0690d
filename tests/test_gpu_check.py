"""The scripts of `tools/gpu_check` work: one job in small sizes on the processor, kept and judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or sys.version_info < (3, 11), reason="JAX is installed on Linux only, for Python 3.11 on"
)
SCRIPTS = ROOT / "tools" / "gpu_check"


def test_a_job_is_timed_profiled_kept_and_judged(tmp_path: Path) -> None:
    out, environment = tmp_path / "out", {**os.environ, "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(
        [sys.executable, SCRIPTS / "run.py", out, "--small", "--only", "products"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.returncode, ran.stderr
    facts, job = map(json.loads, (out / "results.jsonl").read_text().splitlines())
    assert (facts["job"], facts["platform"], job["job"]) == ("facts", "cpu", "products")
    assert job["variants"]["bf16"]["times"].keys() == {"unprofiled", "full", "lean"}
    judged = subprocess.run(
        [sys.executable, SCRIPTS / "judge.py", out, "--logs", tmp_path / "logs"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "products.bf16.full" in judged.stdout, judged.stderr
    assert "PASS  steps: 2 of 2" in judged.stdout, judged.stdout
    assert len([*(tmp_path / "logs").rglob("*.xplane.pb")]) == 2


def test_a_job_that_fails_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, SCRIPTS / "run.py", tmp_path, "--small", "--only", "products", "--seconds", "5"],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stderr
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(each["job"], each["error"]) for each in results] == [
        ("facts", "no time was left"),
        ("products", "no time was left"),
    ]
