"""What is read about the job and its machine: cores, memory and their limits, versions."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
from capture.made import Made

import tfperf
from tfperf.capture.machine import job_facts

CPU = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\nmodel name\t: AMD EPYC 7V13  \ncache size\t: 512 KB\n"
DRIVER = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc 11\n"
)
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build\n"


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_the_machine_and_the_software(made: Made) -> None:
    made.file("proc/cpuinfo", CPU)
    made.file("proc/meminfo", "MemTotal:       24684084 kB\nMemFree:        100 kB\n")
    made.file("proc/driver/nvidia/version", DRIVER)
    facts = job_facts(made.machine)
    assert (facts.cpu_model, facts.memory_bytes) == ("AMD EPYC 7V13", 24684084 * 1024)
    assert (facts.tfperf_version, facts.python_version) == (tfperf.__version__, platform.python_version())
    assert facts.gpu_driver_version == "535.104.05"
    assert (facts.cpu_count, facts.cpu_affinity) == (os.cpu_count(), len(os.sched_getaffinity(0)))
    assert (facts.cpu_quota, facts.memory_limit_bytes) == (None, None)


def test_the_open_driver_has_another_line(made: Made) -> None:
    made.file("proc/driver/nvidia/version", OPEN_DRIVER)
    assert job_facts(made.machine).gpu_driver_version == "550.54.15"


def test_limits_of_cgroups_of_version_2(made: Made) -> None:
    """The tightest of the cgroup and of those around it."""
    made.file("proc/self/cgroup", "0::/kubepods/pod7/job\n")
    made.file("sys/fs/cgroup/kubepods/pod7/job/cpu.max", "max 100000\n")
    made.file("sys/fs/cgroup/kubepods/pod7/job/memory.max", f"{8 << 30}\n")
    made.file("sys/fs/cgroup/kubepods/pod7/cpu.max", "150000 100000\n")
    made.file("sys/fs/cgroup/kubepods/cpu.max", "400000 100000\n")
    made.file("sys/fs/cgroup/kubepods/memory.max", "max\n")
    facts = job_facts(made.machine)
    assert (facts.cpu_quota, facts.memory_limit_bytes) == (1.5, 8 << 30)


def test_a_container_sees_its_cgroup_as_the_root(made: Made) -> None:
    made.file("proc/self/cgroup", "0::/../../docker/abc\n")
    made.file("sys/fs/cgroup/cpu.max", "200000 100000\n")
    assert job_facts(made.machine).cpu_quota == 2.0


def test_limits_of_cgroups_of_version_1(made: Made) -> None:
    made.file("proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n2:cpuset:/\n1:name=systemd:/\n")
    made.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n")
    made.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    made.file("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", f"{2 << 30}\n")
    facts = job_facts(made.machine)
    assert (facts.cpu_quota, facts.memory_limit_bytes) == (2.5, 2 << 30)


def test_no_limit_in_version_1_is_no_number(made: Made) -> None:
    made.file("proc/self/cgroup", "4:memory:/\n1:cpu:/\n")
    made.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    made.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n")
    made.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    facts = job_facts(made.machine)
    assert (facts.cpu_quota, facts.memory_limit_bytes) == (None, None)


@pytest.mark.parametrize("text", ["", "nonsense", "0::", "3:cpu", "150000 0", "a b c"])
def test_odd_files_are_no_limits(made: Made, text: str) -> None:
    made.file("proc/self/cgroup", text if ":" in text else "0::/\n")
    made.file("sys/fs/cgroup/cpu.max", text)
    made.file("proc/cpuinfo", text)
    made.file("proc/meminfo", text)
    facts = job_facts(made.machine)
    assert (facts.cpu_quota, facts.memory_limit_bytes, facts.memory_bytes) == (None, None, None)
