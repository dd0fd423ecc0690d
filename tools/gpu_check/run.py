"""Profile JAX jobs with a known cause on a real GPU, in a few minutes; needs JAX alone.

    python3 tools/gpu_check/run.py FOLDER [--seconds 520] [--only JOB ...] [--small]

Each job runs in a process of its own within a budget, so that a hang or a crash loses that job only. What it found is
written at once: a line of FOLDER/results.jsonl, and its profiles, compressed, at the end of FOLDER/profiles-N.tar. No
file grows beyond 15 MB, and all together stay below 55 MB. `judge.py` reads them, where tfperf is.

Per variant: the time of steps without a profiler, then under it at two levels (`full`: as a user gets it by default;
`lean`: no Python, few host events), each for at most 2 s.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

PROFILED_S, TIMED_S = 1.0, 0.7
WARM, MOST_STEPS = 4, 200
FILE_BYTES, ALL_BYTES = 15 << 20, 55 << 20
LEVELS = {"full": (2, 1), "lean": (1, 0)}
"""Levels of the tracers of the host and of Python.

Two more levels were tried, with JAX 0.11.2 on an H200: host level 2 with `gpu_enable_cupti_activity_graph_trace`, and 3
with `gpu_enable_nvtx_tracking`. Both jobs that had them died of a segmentation fault.
"""


def main() -> int:
    """Run the jobs until the time is over; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=520.0, help="all jobs together (default: 520)")
    parser.add_argument("--only", nargs="+", metavar="JOB")
    parser.add_argument("--small", action="store_true", help="sizes for a processor, to try the script")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        import jax

        jax.local_devices()
        sys.stdin.readline()
        print(json.dumps(facts() if options.job == "facts" else run_job(options.job, options.folder, options.small)))
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(Path(__file__).parent))
    until, failed = time.monotonic() + options.seconds, 0
    budgets = {"facts": 60, **job_budgets()}
    names = ["facts", *(options.only or [job for job in budgets if job != "facts"])]
    with tempfile.TemporaryDirectory() as temporary:
        following = start(names[0], Path(temporary), small=options.small)
        for place, name in enumerate(names):
            process = following
            if place + 1 < len(names):
                following = start(names[place + 1], Path(temporary), small=options.small)
            left = until - time.monotonic()
            if left < 10:
                process.kill()
                result = {"job": name, "error": "no time was left"}
            else:
                result = finish(process, name, min(left, budgets[name]))
            keep(options.folder, result, Path(temporary) / name)
            failed += "error" in result
            print(json.dumps(result)[:400], flush=True)
    return 1 if failed else 0


def job_budgets() -> dict[str, int]:
    """Return the seconds that each job may take, without importing JAX here: a process that did holds GPU memory."""
    code = "import json; from jobs import JOBS; print(json.dumps({name: job.budget_s for name, job in JOBS.items()}))"
    found = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, check=True)
    budgets: dict[str, int] = json.loads(found.stdout)
    return budgets


def start(name: str, folder: Path, *, small: bool) -> subprocess.Popen[str]:
    """Start the process of a job; it gets the device ready, and waits for `finish`."""
    command = [sys.executable, __file__, str(folder / name), "--job", name, *(["--small"] if small else [])]
    pipe, share = subprocess.PIPE, {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.4"}
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env={**os.environ, **share})


def finish(process: subprocess.Popen[str], name: str, budget_s: float) -> dict[str, Any]:
    """Let a job run, and return what it printed last, or what went wrong."""
    begun = time.monotonic()
    try:
        output, errors = process.communicate("go\n", timeout=budget_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return {"job": name, "error": f"took longer than {budget_s:.0f} s"}
    if process.returncode:
        return {"job": name, "error": f"exit code {process.returncode}: {errors[-2000:]}"}
    return {"job": name, **json.loads(output.splitlines()[-1]), "took_s": round(time.monotonic() - begun, 1)}


def keep(folder: Path, result: dict[str, Any], profiles: Path) -> None:
    """Write a result and the profiles of its job; what finds no room is named instead."""
    left_out = []
    for path in sorted(profiles.rglob("*.xplane.pb")):
        data = gzip.compress(path.read_bytes(), 6)
        name = f"{path.relative_to(profiles).parts[0]}.xplane.pb.gz"
        used = sum(tar.stat().st_size for tar in folder.glob("profiles-*.tar"))
        if len(data) > FILE_BYTES - 20_480 or used + len(data) > ALL_BYTES:
            left_out.append(f"{name} ({len(data):,} bytes)")
            continue
        tars = sorted(folder.glob("profiles-*.tar"))
        last = tars[-1] if tars and tars[-1].stat().st_size + len(data) < FILE_BYTES else None
        with tarfile.open(last or folder / f"profiles-{len(tars) + 1}.tar", "a") as tar:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    if left_out:
        result = {**result, "left_out": left_out}
    with (folder / "results.jsonl").open("a") as file:
        file.write(json.dumps(result) + "\n")


# In the process of a job


def facts() -> dict[str, Any]:
    """Return what the machine is, and what it can do at most by simple programs of JAX."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    device = jax.local_devices()[0]
    size = 8192 if device.platform == "gpu" else 256
    a = jnp.ones((size, size), jnp.bfloat16)
    multiply, copy = jax.jit(lambda a: a @ a), jax.jit(lambda x: x + 1)
    host, large = np.ones(size * size, np.float32), jnp.ones((size * size,), jnp.float32)
    smi = shutil.which("nvidia-smi")
    return {
        "jax": jax.__version__,
        "device": device.device_kind,
        "platform": device.platform,
        "memory_bytes": (device.memory_stats() or {}).get("bytes_limit"),
        "product_tflops": 2 * size**3 / _best(lambda: multiply(a)) / 1e12,
        "memory_gb_per_s": 2 * large.nbytes / _best(lambda: copy(large)) / 1e9,
        "to_device_gb_per_s": host.nbytes / _best(lambda: jax.device_put(host)) / 1e9,
        "to_host_gb_per_s": large.nbytes / _best(lambda: np.array(copy(large))) / 1e9,
        "nvidia_smi": subprocess.run([smi, "-q"], stdout=subprocess.PIPE, text=True, check=False).stdout if smi else "",
    }


def _best(run: Any, tries: int = 5) -> float:
    import jax

    jax.block_until_ready(run())
    times = []
    for _ in range(tries):
        begun = time.perf_counter()
        jax.block_until_ready(run())
        times.append(time.perf_counter() - begun)
    return min(times)


def run_job(name: str, folder: Path, small: bool) -> dict[str, Any]:
    """Time and profile all variants of a job."""
    from jobs import JOBS

    job, found = JOBS[name], dict[str, Any]()
    for variant, make in job.variants.items():
        try:
            found[variant] = run_variant(f"{name}.{variant}", make(small), folder, job, MOST_STEPS // 10**small)
        except Exception as error:
            found[variant] = {"error": f"{type(error).__name__}: {error}"[-2000:]}
    return {"cause": job.cause, "also": sorted(job.also), "variants": found}


def run_variant(name: str, loop: Any, folder: Path, job: Any, most_steps: int) -> dict[str, Any]:
    """Time and profile a variant, in steps without and with a profiler."""
    import jax

    number = 0

    def repeat(count: int) -> list[float]:
        """Do steps, and return when each was over, in seconds from the start."""
        nonlocal number
        begun, ends, value = time.perf_counter(), [], None
        for _ in range(count):
            with jax.profiler.StepTraceAnnotation("train", step_num=number) if job.marked else _Nothing():
                value = loop.step(number)
                if loop.waits:
                    jax.block_until_ready(value)
            number += 1
            ends.append(time.perf_counter() - begun)
        jax.block_until_ready(value)
        ends[-1] = time.perf_counter() - begun
        return ends

    repeat(WARM)
    step_s = repeat(WARM)[-1] / WARM
    count = max(8, min(most_steps, int(TIMED_S / step_s)))
    times = {"unprofiled": _summary(repeat(count))}
    count = max(8, min(most_steps, int(PROFILED_S / step_s)))
    for level, (host, python) in LEVELS.items():
        options = jax.profiler.ProfileOptions()
        options.host_tracer_level, options.python_tracer_level = host, python
        with jax.profiler.trace(str(folder / f"{name}.{level}"), profiler_options=options):
            ends = repeat(count)
        times[level] = _summary(ends)
    stats = jax.local_devices()[0].memory_stats() or {}
    known = {key: getattr(loop, key) for key in ("waits", "flops", "to_device", "to_host", "precision")}
    stated = _stated(loop.compiled) if loop.compiled else {}
    return {**known, **stated, "times": times, "memory_peak_bytes": stats.get("peak_bytes_in_use")}


def _stated(compiled: Any) -> dict[str, Any]:
    """Return the memory and the work that XLA states for a program."""
    memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
    parts = ("argument", "output", "alias", "temp", "generated_code")
    return {
        "memory_analysis": {part: getattr(memory, f"{part}_size_in_bytes") for part in parts},
        "cost_analysis": {key: value for key, value in cost.items() if key in {"flops", "bytes accessed"}},
    }


class _Nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def _summary(ends: list[float]) -> dict[str, float]:
    """Return how many steps there were, and milliseconds: their mean, median, and the longest."""
    steps = [1000 * (b - a) for a, b in zip([0.0, *ends], ends, strict=False)]
    return {"steps": len(ends), "mean": 1000 * ends[-1] / len(ends), "median": median(steps), "longest": max(steps)}


if __name__ == "__main__":
    sys.exit(main())
