from __future__ import annotations

from pathlib import Path

from builders import event, host, line, plane, ref, trace_of

from tfperf.sections.xla.analysis import compile_times

US = 1_000_000


def test_a_compilation_is_all_that_is_done_for_a_program(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        host(
            event("PjRtCpuClient::Compile", 0, 50),
            event("CpuCompiler::RunBackend", 10, 30, name=ref("jit_f")),
            event("GpuCompiler::RunBackend", 60, 5, name=ref("jit_g")),
            event("PjRtCpuClient::Compile", 70, 20),
            event("CpuCompiler::RunBackend", 71, 3, name=ref("jit_f")),
            event("Other::RunBackend", 95, 3, name=ref("jit_h")),
        ),
    )
    assert compile_times(trace) == {"jit_f": 70 * US, "jit_g": 5 * US}


def test_a_capture_without_compilations_has_none(tmp_path: Path) -> None:
    assert compile_times(trace_of(tmp_path, host(event("PjRtCpuClient::Compile", 0, 50)))) == {}


def test_on_a_tpu_the_call_around_a_compilation_says_of_what_it_is(tmp_path: Path) -> None:
    """A function is traced inside the call of another one, and compiled by itself."""
    trace = trace_of(
        tmp_path,
        host(
            event("PjitFunction(_psum)", 0, 100),
            event("PjitFunction(add)", 5, 20),
            event("backend_compile", 6, 10),
            event("backend_compile", 30, 60),
            event("TfrtTpuCompiler::Compile", 31, 50),
            event("PjitFunction(<lambda>)", 200, 20),
            event("backend_compile", 201, 9),
            event("backend_compile", 300, 9),
        ),
        plane("/device:TPU:0", line("XLA Ops", event("add", 400, 5))),
    )
    assert compile_times(trace) == {"jit_add": 10 * US, "jit__psum": 60 * US, "jit__lambda_": 9 * US}
