"""Two real processes under one TF_CONFIG profile themselves into one run, whichever way they are profiled."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from job_environment import job_environment

import tfperf
from tfperf.trace.logdir import find_runs

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.skipif(sys.platform != "linux", reason="tensorflow-cpu is installed on Linux only"),
]

JOB = """
import os
import signal
import tensorflow as tf
import tfperf
from tfperf.keras import ProfileCallback

@tf.function
def work(x):
    return tf.reduce_sum(tf.matmul(x, x))

def profile(**options):
    with tfperf.profile("logs", **options):
        for number in range(3):
            with tfperf.step(number):
                work(tf.ones((50, 50)))

profile()
profile(run="named")
callback = ProfileCallback("logs", batches=(2, 3), verbose=False)
for batch in range(5):
    callback.on_train_batch_begin(batch)
    work(tf.ones((50, 50)))
    callback.on_train_batch_end(batch)
os.environ["TFPERF_RUN"] = "of-the-launcher"
if '"index": 1' in os.environ["TF_CONFIG"]:
    os.kill(os.getpid(), signal.SIGKILL)
profile()
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both workers wrote; the second was killed before its last profile."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "job.py").write_text(JOB)
    cluster = {"worker": ["127.0.0.1:21001", "127.0.0.1:21002"]}
    workers = [
        subprocess.Popen(
            [sys.executable, "job.py"],
            cwd=folder,
            env=job_environment(keras=False)
            | {"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})},
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    errors = [worker.communicate()[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, -9], errors
    return folder / "logs"


def test_each_profile_is_one_run_with_a_file_for_each_worker(logdir: Path) -> None:
    runs = find_runs(logdir)
    tasks = {run.name: [file.host.rpartition("_")[2] for file in run.files] for run in runs}
    of_both = {name: tasks.pop(name) for name in list(tasks) if name != "of-the-launcher"}
    assert len(of_both) == 3, "by the count, by a name, by the steps"
    assert "named" in of_both
    assert all(hosts == ["worker-0", "worker-1"] for hosts in of_both.values()), of_both
    assert tasks == {"of-the-launcher": ["worker-0"]}, "what the other gave is kept"
    assert not list(logdir.rglob("*.tmp"))


def test_a_trace_says_which_task_it_is_of(logdir: Path) -> None:
    analysis = tfperf.load(logdir, run="named", sections=["environment"])
    facts = [host["environment"].facts for host in analysis.hosts]
    assert [(each.task_type, each.task_index, each.cluster_size) for each in facts] == [
        ("worker", 0, 2),
        ("worker", 1, 2),
    ]
    assert facts[0].cluster_id == facts[1].cluster_id
    starts = [each.start_time_us for each in facts]
    assert all(start and 1e15 < start < 1e16 for start in starts)
