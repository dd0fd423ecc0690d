"""The stage that is waited for most, also where only a part of the pipeline is in the trace."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import Line, event, line
from builders import iterator_call as call
from sections.tfdata.made_pipelines import US, analyzed, repeat, waiting_job

from tfperf.sections.tfdata.advice import actions_of, blamed_stage


def on_a_device(wait_us: float) -> tuple[Line, Line, Line]:
    """Prefetch > Generator, whose function is a call of a function on the host: it waits but for 4 us."""
    return (
        line("python", call("Prefetch", 0, wait_us, 1)),
        line(
            "device",
            event("PrefetchProduce", 0, wait_us),
            call("Prefetch::Generator", 1, wait_us - 2, 2, 1),
            event("InstantiatedCapturedFunction::RunWithBorrowedArgs", 2, wait_us - 4, id=7),
        ),
        line("pool", event("ExecutorState::Process", 3, 4, id=7), event("RemoteCall:RemoteCall", 4, 2)),
    )


def test_of_a_device_pipeline_the_generator_is_named_and_the_host_behind_it(tmp_path: Path) -> None:
    tfdata = analyzed(tmp_path, *on_a_device(100))
    blame = blamed_stage(tfdata)
    assert blame is not None
    assert (blame.stage, blame.reason, blame.waited_ps, blame.share) == ("Generator", "host_pipeline", 98 * US, 0.98)
    assert "the pipeline on the host" in blame.text
    assert actions_of(tfdata) == (), "what to change on the host is unknown; a prefetch is there"
    (generator,) = [stage for stage in tfdata.pipelines[0].stages if stage.name == "Generator"]
    assert generator.work_ps == (1 + 4 + 1) * US, "it waits for the host the rest of the time"


def handed_on(host_us: float) -> tuple[Line, ...]:
    """A device waits for 90 us; meanwhile a thread asks the pipeline on the host, whose map works for so long."""
    asking = (call("Root", 4, host_us, 11), call("Root::Map", 4, host_us, 12, 11))
    return (*on_a_device(90), line("tf_data_multi_device_iterator_resource", *asking))


@pytest.mark.parametrize(("host_us", "stage", "reason"), [(80, "Map", "work"), (10, "Generator", "to_device")])
def test_the_host_behind_a_device_is_blamed_if_it_works(
    host_us: float, stage: str, reason: str, tmp_path: Path
) -> None:
    blame = blamed_stage(analyzed(tmp_path, *handed_on(host_us)))
    assert blame is not None
    assert (blame.stage, blame.reason) == (stage, reason)


@pytest.mark.parametrize(
    ("path", "stage", "code", "reason"),
    [
        (("Map",), "Map", "map()", "work"),
        (("BatchV2", "DataServiceV4"), "DataServiceV4", "DataServiceV4", "workers"),
        ((), "Root", "Root", "hand_over"),
        (("Options",), "Options", "Options", "hand_over"),
    ],
)
def test_the_reason_is_that_of_the_stage(
    path: tuple[str, ...], stage: str, code: str, reason: str, tmp_path: Path
) -> None:
    blame = blamed_stage(analyzed(tmp_path, *waiting_job(*path)))
    assert blame is not None
    assert (blame.stage, blame.code, blame.reason, blame.share) == (stage, code, reason, 1.0)
    assert blame.text.startswith(f"100.0% of the waiting is for {stage}")


def test_where_nobody_waits_long_nothing_is_blamed(tmp_path: Path) -> None:
    assert blamed_stage(analyzed(tmp_path, line("python", *repeat(3, call("Root", 0, 20, 1))))) is None
    assert blamed_stage(analyzed(tmp_path, *on_a_device(40))) is None
    assert blamed_stage(analyzed(tmp_path, line("python", event("train", 0, 10)))) is None
