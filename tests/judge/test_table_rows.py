"""A column of a table as one number: conditions, functions, and cells that are unknown."""

from __future__ import annotations

import math

import pytest

from tfperf.judge.grammar import read_limit
from tfperf.judge.limits import Measurement, Status
from tfperf.judge.measure import measure_rows, metric_title
from tfperf.report.model import Data

KERNELS: Data = {
    "kernel_name": ["ncclAllReduce", "ncclGather", "gemm", None],
    "kernel": ["ncclAllReduce", "ncclGather", "gemm", "copy"],
    "op_name": ["a", None, "b", "c"],
    "total_us": [300.0, 150.0, 900.0, 10.0],
    "mean_us": [30.0, None, math.nan, 10.0],
    "occurrences": [10, 5, 3, None],
    "is_kernel_using_tensor_core": [False, None, True, False],
}


def measured(text: str, data: Data = KERNELS) -> Measurement:
    return measure_rows(read_limit(text), data)


def judged(text: str, data: Data = KERNELS) -> tuple[Status, float | None]:
    measurement = measured(text, data)
    return measurement.status(read_limit(text)), measurement.value


@pytest.mark.parametrize(
    ("text", "status", "value"),
    [
        ("kernels.total_us[name~nccl] <= 300", "pass", 300),
        ("kernels.total_us[name~nccl] < 300", "breach", 300),
        ("kernels.total_us[name!~nccl] < 300", "breach", 900),  # an unknown name is empty text, without nccl
        ("kernels.total_us[name~nccl] >= 150", "pass", 150),
        ("kernels.total_us[name~nccl] > 150", "breach", 150),
        ("kernels.total_us[name=gemm] < 1ms", "pass", 900),
        ("kernels.total_us[op_name=''] < 1ms", "pass", 150),
        ("sum(kernels.total_us[name~nccl]) <= 450us", "pass", 450),
        ("sum(kernels.total_us[name~'(?i)NCCL',kernel!=ncclGather]) <= 450us", "pass", 300),
        ("max(kernels.total_us) <= 450us", "breach", 900),
        ("min(kernels.total_us) >= 10us", "pass", 10),
        ("min(kernels.total_us) <= 9us", "breach", 10),
        ("mean(kernels.total_us[name~nccl]) < 225", "breach", 225),
        ("median(kernels.total_us[name~nccl]) <= 225", "pass", 225),
        ("p95(kernels.total_us[name~nccl]) < 292.5", "breach", 292.5),  # 150 + 0.95 * 150
        ("count(kernels.kernel[name~nccl]) <= 1", "breach", 2),
        ("count(kernels.kernel[name~xyz]) <= 0", "pass", 0),
        ("count(kernels.kernel[occurrences>=5,total_us>100]) <= 2", "pass", 2),  # the row without a count: 10 us
    ],
)
def test_known_cells(text: str, status: Status, value: float) -> None:
    assert judged(text) == (status, value)


@pytest.mark.parametrize(
    ("text", "status", "value"),
    [
        # No row meets the conditions.
        ("kernels.total_us[name~xyz] < 5", "unknown", None),
        ("sum(kernels.total_us[name~xyz]) < 5", "unknown", None),
        # A cell is unknown: a known one that breaches the limit is enough.
        ("kernels.mean_us < 20", "breach", 30),
        ("kernels.mean_us < 99", "unknown", 30),
        ("kernels.mean_us[kernel=copy] < 99", "pass", 10),
        ("kernels.mean_us[kernel=gemm] < 99", "unknown", None),
        ("max(kernels.mean_us) < 20", "breach", 30),
        ("max(kernels.mean_us) < 99", "unknown", 30),
        ("sum(kernels.mean_us) < 39", "breach", 40),
        ("sum(kernels.mean_us) < 99", "unknown", 40),
        ("sum(kernels.mean_us) > 99", "unknown", None),
        ("mean(kernels.mean_us) < 5", "unknown", None),
        ("min(kernels.mean_us) < 5", "unknown", None),
        ("max(kernels.mean_us) > 99", "unknown", None),
        # It is unknown whether a row meets the conditions.
        ("kernels.total_us[is_kernel_using_tensor_core=false] < 200", "breach", 300),
        ("kernels.total_us[is_kernel_using_tensor_core=false,kernel=copy] < 200", "pass", 10),
        ("kernels.total_us[is_kernel_using_tensor_core!=true] < 400", "pass", 300),  # 150 us hold it as well
        ("kernels.total_us[is_kernel_using_tensor_core=true] < 100", "breach", 900),
        ("kernels.total_us[is_kernel_using_tensor_core=true] > 200", "unknown", 900),
        ("sum(kernels.total_us[is_kernel_using_tensor_core=false]) < 400", "unknown", 310),
        ("sum(kernels.total_us[is_kernel_using_tensor_core=false]) < 310", "breach", 310),
        ("count(kernels.kernel[occurrences>=5]) <= 1", "breach", 2),
        ("count(kernels.kernel[occurrences>=5]) <= 2", "unknown", 2),
        ("count(kernels.kernel[occurrences>=5]) >= 2", "unknown", None),
        ("count(kernels.kernel[occurrences>=5]) >= 3", "unknown", None),
    ],
)
def test_unknown_cells(text: str, status: Status, value: float | None) -> None:
    assert judged(text) == (status, value)


@pytest.mark.parametrize("cell", [math.nan, math.inf, -math.inf, None, "text", True, 10**400])
def test_cells_that_are_not_numbers_are_unknown(cell: object) -> None:
    for text in ("kernels.total_us < 9", "kernels.total_us > 9", "sum(kernels.total_us) < 9"):
        assert judged(text, {**KERNELS, "total_us": [cell] * 4}) == ("unknown", None)


def test_the_worst_row_is_named() -> None:
    assert measured("kernels.total_us[kernel~nccl] < 1").why == "kernel_name ncclAllReduce, the worst of 2 rows"
    assert measured("kernels.total_us[kernel=copy] < 1").why == "row 4"
    long_names = {**KERNELS, "kernel_name": ["x" * 10_000] * 4}
    assert len(measured("kernels.total_us < 1", long_names).why) < 200


def test_the_host_of_the_worst_row_is_kept() -> None:
    by_host: Data = {"host": ["a", "b"], "average_ms": [1.0, 2.0]}
    assert measured("steps_by_host.average_ms < 1", by_host).host == "b"
    assert measured("kernels.total_us < 1").host == ""


def test_a_function_says_over_how_many_rows() -> None:
    assert measured("sum(kernels.total_us[kernel~nccl]) < 1").why == "over 2 rows"
    assert measured("sum(kernels.total_us[kernel=gemm]) < 1").why == "over 1 row"
    assert measured("count(kernels.kernel[kernel~nccl]) <= 1").why == "of 4 rows"


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("kernels.mean_us < 99", "kernels.mean_us is unknown in 2 rows"),
        ("sum(kernels.mean_us[occurrences>5]) < 99", "it is unknown whether 1 row meets the conditions"),
        (
            "sum(kernels.mean_us[occurrences>3]) < 99",
            "kernels.mean_us is unknown in 1 row; it is unknown whether 1 row meets the conditions",
        ),
        ("count(kernels.kernel[occurrences>=5]) <= 2", "it is unknown whether 1 row meets the conditions"),
        ("kernels.total_us[name~xyz] < 5", "no such kernel ran; if that is fine, end the limit in: or none"),
    ],
)
def test_what_is_unknown_is_reported(text: str, gap: str) -> None:
    assert measured(text).gap == gap


def test_a_table_without_rows_has_only_a_count() -> None:
    empty: Data = {key: [] for key in KERNELS}
    assert judged("count(kernels.kernel) <= 0", empty) == ("pass", 0)
    assert measured("kernels.total_us < 5", empty).gap == "no kernel ran; if that is fine, end the limit in: or none"


@pytest.mark.parametrize("function", ["", "sum", "max", "min", "mean"])
@pytest.mark.parametrize("relation", ["<", ">="])
def test_a_limit_may_hold_where_no_row_is_chosen(function: str, relation: str) -> None:
    def judge(condition: str, column: str = "total_us") -> tuple[Status, float | None]:
        text = f"kernels.{column}[{condition}]"
        return judged(f"{function}({text}) {relation} 5 or none" if function else f"{text} {relation} 5 or none")

    assert judge("name~xyz") == ("pass", None)
    assert judge("name~nccl")[0] == ("breach" if relation == "<" else "pass")
    # That it is unknown whether a row is chosen, or what a row holds, is not that there is none.
    assert judge("name~xyz,occurrences>5") == ("pass", None)
    assert judge("kernel=copy,occurrences>5") == ("unknown", None)
    assert judge("kernel=gemm", "mean_us") == ("unknown", None)


def test_titles_are_the_metric_in_words() -> None:
    assert metric_title(read_limit("sum( kernels.total_us [name ~ nccl] )<5")) == (
        "sum of kernels.total_us[kernel_name~nccl]"
    )
    assert metric_title(read_limit("kernels.total_us<5")) == "kernels.total_us"
