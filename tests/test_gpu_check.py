"""The scripts of `tools/gpu_check` work: one job in small sizes on the processor, kept and judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from job_environment import with_jax
from places import ROOT

pytestmark = with_jax
SCRIPTS = ROOT / "tools" / "gpu_check"


def run(script: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command, environment = [sys.executable, SCRIPTS / script, *arguments], {**os.environ, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_job_is_timed_profiled_kept_and_judged(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = run("run.py", out, "--small", "--only", "products")
    assert not ran.returncode, ran.stderr
    facts, job = map(json.loads, (out / "results.jsonl").read_text().splitlines())
    assert (facts["job"], facts["platform"], job["job"]) == ("facts", "cpu", "products")
    assert job["variants"]["bf16"]["times"].keys() == {"unprofiled", "full", "lean"}
    judged = run("judge.py", out, "--logs", tmp_path / "logs")
    assert "products.bf16.full" in judged.stdout, judged.stderr
    assert "PASS  steps: 2 of 2" in judged.stdout, judged.stdout
    assert len([*(tmp_path / "logs").rglob("*.xplane.pb")]) == 2


def test_a_job_that_fails_is_named_and_the_rest_goes_on(tmp_path: Path) -> None:
    ran = run("run.py", tmp_path, "--small", "--only", "products", "--seconds", "5")
    assert ran.returncode == 1, ran.stderr
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(each["job"], each["error"]) for each in results] == [
        ("facts", "no time was left"),
        ("products", "no time was left"),
    ]
