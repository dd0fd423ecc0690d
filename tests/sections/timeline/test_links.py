"""Links between blocks."""

from __future__ import annotations

from pathlib import Path

from builders import event, iterator_call, line, plane
from sections.timeline.pictures import US, gpu_host, pictures_of

from tfperf.report.model import StepPicture

STEPS = [event("train", 1000 * n, 1000, step_num=n) for n in range(4)]


def linked(picture: StepPicture) -> list[tuple[str, str, str]]:
    """Return kind, name at the start and name at the end of each link."""
    level, links = picture.levels[-1], picture.links

    def name_at(row: int, ns: int) -> str:
        columns = zip(level.row.tolist(), level.start_ns.tolist(), level.name.tolist(), strict=True)
        found: str = next(picture.names[name].name for at, start, name in columns if (at, start) == (row, ns))
        return found

    ends = zip(
        links.from_row.tolist(), links.from_ns.tolist(), links.to_row.tolist(), links.to_ns.tolist(), strict=True
    )
    return [
        (links.kinds[kind], name_at(*each[:2]), name_at(*each[2:]))
        for kind, each in zip(links.kind.tolist(), ends, strict=True)
    ]


def test_launches_lead_to_what_they_launched(tmp_path: Path) -> None:
    picture = gpu_host(tmp_path)["timeline"].pictures[0]
    launch = "launches", "cuLaunchKernel"
    of_device = [
        (*launch, "ampere_sgemm_128x64_nn"),
        (*launch, "relu_kernel"),
        (*launch, "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("launches", "MemcpyH2D", "MemcpyH2D"),
    ]
    assert linked(picture) == [*of_device, ("launches", "MemcpyD2H", "MemcpyD2H"), *of_device]


def test_a_send_leads_to_the_receive_that_it_ends(tmp_path: Path) -> None:
    threads = (
        line("python", *STEPS, id=1),
        line("a", event("w/_1:_Send", 2100, 20), event("w/_1:_Send", 2500, 20), id=2),
        line("b", event("w/_2:_Recv", 2050, 100), event("v/_4:_Recv", 2300, 100), event("w/_2:_Recv", 2450, 90), id=3),
    )
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", *threads), step=2)
    assert linked(picture) == [("sends to", "w/_1:_Send", "w/_2:_Recv")] * 2
    assert picture.links.from_ns.tolist() == [100 * US, 500 * US]
    assert picture.links.to_ns.tolist() == [50 * US, 450 * US]


def test_a_fetch_leads_to_the_thread_that_made_its_element(tmp_path: Path) -> None:
    """When the third element is asked for, one waits in the buffer: of three hand-overs that ended, the last."""
    fetches = [event("IteratorGetNextOp::DoCompute", 1000 * n + 100, 100, id=1) for n in range(4)]
    calls = [
        iterator_call("Prefetch", 1000 * n + 110, 50, 7, buffered_elements=1 if n else 0, buffer_limit=2)
        for n in range(4)
    ]
    made = [event("PrefetchProduce", start, 80) for start in (0, 900, 1900, 2900)]
    inner = [iterator_call("Prefetch::Map", start + 5, 60, 8, 7) for start in (0, 900, 1900, 2900)]
    threads = line("python", *STEPS, *fetches, *calls, id=1), line("tf_data_prefetch", *made, *inner, id=2)
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", *threads), step=2)
    assert linked(picture) == [], "it was made in the step before, which is not drawn"
    late = [event("PrefetchProduce", start, 80) for start in (0, 900, 2001, 2900)]
    inner = [iterator_call("Prefetch::Map", start + 5, 60, 8, 7) for start in (0, 900, 2001, 2900)]
    threads = line("python", *STEPS, *fetches, *calls, id=1), line("tf_data_prefetch", *late, *inner, id=2)
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", *threads), step=2)
    assert linked(picture) == [("gets the element of", "IteratorGetNextOp::DoCompute", "PrefetchProduce")]
    assert picture.links.to_ns.tolist() == [1 * US]


def test_nothing_is_linked_where_nothing_tells(tmp_path: Path) -> None:
    (picture,) = pictures_of(tmp_path, plane("/host:CPU", line("python", *STEPS)), step=2)
    assert linked(picture) == []
    assert picture.links.omitted == 0
