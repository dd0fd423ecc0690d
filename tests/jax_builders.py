"""Tiny traces of JAX programs: calls of jitted functions on a thread, the programs that they run, and their runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from builders import Event, Plane, event, line, plane, space, trace_of

from tfperf.formats.hlo.messages import XLA
from tfperf.trace.host_trace import HostTrace

GRADIENT = ("fusion", "jit(f)/transpose(jvp(f))/dot_general")
FORWARD = ("dot", "jit(f)/dot_general")
OTHER = ("add", "jit(f)/add")
Instructions = tuple[tuple[str, str], ...]
"""Opcode and op name of each instruction of a program."""


def program(module: str, *instructions: tuple[str, str]) -> bytes:
    proto = XLA.message_class("NamedProto")()
    proto.hlo_module.name = module.encode()
    computation = proto.hlo_module.computations.add()
    for number, (opcode, op_name) in enumerate(instructions):
        made = computation.instructions.add()
        made.name, made.opcode, made.metadata.op_name = f"{opcode}.{number}".encode(), opcode.encode(), op_name.encode()
    data: bytes = proto.SerializeToString()
    return data


def programs(modules: Mapping[int, tuple[str, Instructions]]) -> Plane:
    """The plane of programs: program id -> name of the module, and what it is made of."""
    stats = {
        f"{name}({key})": {"program_id": key, "Hlo Proto": program(name, *made)}
        for key, (name, made) in modules.items()
    }
    return plane("/host:metadata", name_stats=stats)


def call(function: str, start_us: float, duration_us: float, *inside: Event) -> list[Event]:
    """A call as JAX notes it: twice, one inside the other."""
    name = f"PjitFunction({function})"
    return [event(name, start_us, duration_us), event(name, start_us + 0.001, duration_us - 0.002), *inside]


def run(run_id: int, program_id: int, start_us: float, duration_us: float, op: str = "fusion.0") -> list[Event]:
    """A run on the CPU: one op, and the event that waits for the end of all."""
    half = duration_us / 2
    return [
        event(op, start_us, half, hlo_op=op, program_id=program_id, run_id=run_id),
        event("ThunkExecutor::Execute (wait for completion)", start_us + half, half, run_id=run_id),
    ]


def jax_trace(
    folder: Path, modules: Mapping[int, tuple[str, Instructions]], python: list[Event], worker: list[Event]
) -> HostTrace:
    """A trace with a Python thread and one that works for it, which knows these programs."""
    host = plane("/host:CPU", line("python", *python, id=1), line("tf_XLAPjRtCpuClient/2", *worker, id=2))
    return trace_of(folder, programs(modules), host)


def three_steps() -> bytes:
    """Calls of a jitted function, and the runs of its program."""
    calls = [each for number in range(3) for each in call("step", 100 * number, 90)]
    runs = [each for number in range(3) for each in run(number, 1, 100 * number + 10, 50, "fusion.0")]
    threads = plane("/host:CPU", line("python", *calls, id=1), line("worker", *runs, id=2))
    return space(programs({1: ("jit_step", (GRADIENT,))}), threads)
