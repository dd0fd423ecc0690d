"""What the files of a run cannot tell, and why."""

from __future__ import annotations

from tfperf.report.model import Section
from tfperf.sections.host import Host
from tfperf.sections.results import Results

_MOST_MESSAGES = 10
_MOST_DEVICES = 4


def analyze(host: Host) -> tuple[str, ...]:
    """Say what the file of a host cannot tell."""
    trace, steps = host.trace, host["steps"].steps
    gaps = [] if len(steps) else [f"Steps: {steps.explanation}."]
    if not trace.event_count:
        gaps.append("Everything: the file holds no events.")
    elif not any(plane.kind == "host" and plane.event_count for plane in trace.planes):
        gaps.append("Host time: there is no event of a host thread (host tracer off?).")
    if trace.empty_devices:
        listed = ", ".join(trace.empty_devices[:_MOST_DEVICES])
        gaps.append(
            f"Device time of {len(trace.empty_devices)} device(s) ({listed}): the trace lists them, but holds no event "
            "of theirs (unused, or not traced)."
        )
    elif not trace.devices:
        gaps.append("Device time: no device is in the trace (a CPU job, or the device was not traced).")
    if trace.malformed_events:
        gaps.append(f"{trace.malformed_events} event(s) with impossible times were omitted.")
    if any(plane.name == "/host:metadata" for plane in trace.planes) and not trace.stat("tf_function_call").event.size:
        gaps.append("tf.functions: this looks like a JAX trace; TensorFlow's own sections stay empty.")
    messages = [f"The profiler reported an error: {message}" for message in trace.errors]
    messages += [f"The profiler warned: {message}" for message in trace.warnings]
    gaps += messages[:_MOST_MESSAGES]
    if len(messages) > _MOST_MESSAGES:
        gaps.append(f"{len(messages) - _MOST_MESSAGES} more errors and warnings of the profiler are omitted.")
    return tuple(gaps)


def build(results: Results) -> Section:
    """List the gaps of all hosts, and what no profile records."""
    notes = [
        f"{host.host}: {gap}" if results.has_several_hosts else gap for host in results.hosts for gap in host["gaps"]
    ]
    if len(results["steps"].steps) and not results["steps"].input_visible:
        notes.append(
            "Input: no fetch from tf.data and no copy to a device is in the trace, so input time is unknown, not 0."
        )
    notes.append("Host CPU cores and memory, and the TensorFlow version: the profile does not record them.")
    return Section("gaps", "What this trace cannot tell", notes=tuple(notes))
