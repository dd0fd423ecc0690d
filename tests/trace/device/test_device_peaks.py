from __future__ import annotations

import csv
from pathlib import Path

import pytest
from places import SHARED

from tfperf.base.errors import TfperfError
from tfperf.trace.device.device_peaks import peaks_of, public_peaks, read_peaks
from tfperf.trace.device.device_peaks import vendor as vendor_of
from tfperf.trace.host_trace import Plane, PlaneKind

REFERENCE = SHARED / "traces" / "xla_reference"


def device(kind: PlaneKind = "gpu", **stats: int | float | str) -> Plane:
    return Plane(0, "/device:GPU:0", kind, stats, 1)


def gpu(capability: str, cores: int, clock_mhz: int, gb_per_second: float, gib: float, vendor: str = "") -> Plane:
    major, minor = map(int, capability.split("."))
    return device(
        compute_cap_major=major,
        compute_cap_minor=minor,
        core_count=cores,
        clock_rate=clock_mhz * 1000,
        memory_bandwidth=int(gb_per_second * 1e9),
        memory_size=int(gib * 2**30),
        device_vendor=vendor,
    )


V100 = gpu("7.0", 80, 1530, 898.0, 15.8)
T4 = gpu("7.5", 40, 1590, 320.1, 14.8)
RTX_5000 = gpu("7.5", 48, 1815, 448.1, 15.7)
MI300X = gpu("9.4", 304, 2100, 2662.4, 192.0, vendor="AMD")


@pytest.mark.parametrize(
    ("plane", "model", "precision", "teraflops", "gb_per_second"),
    [
        (V100, "NVIDIA V100 SXM2", "fp16", 125, 900),
        (T4, "NVIDIA T4", "fp32", 8.1, 320),
        (gpu("8.0", 108, 1410, 1555.2, 39.4), "NVIDIA A100 40 GB", "tf32", 156, 1555),
        (gpu("8.0", 108, 1410, 2039.0, 79.2), "NVIDIA A100 80 GB SXM", "bf16", 312, 2039),
        (gpu("8.0", 108, 1410, 1935.4, 79.2), "NVIDIA A100 80 GB PCIe", "bf16", 312, 1935),
        (gpu("8.9", 58, 2040, 300.1, 22.0), "NVIDIA L4", "fp16", 121, 300),
        (gpu("9.0", 132, 1980, 3352.3, 79.1), "NVIDIA H100 SXM", "fp8", 1978.9, 3350),
        (gpu("9.0", 114, 1755, 2039.0, 79.1), "NVIDIA H100 PCIe", "bf16", 756, 2000),
        (gpu("9.0", 132, 1980, 4917.0, 139.8), "NVIDIA H200 SXM", "bf16", 989.4, 4800),
        (gpu("9.0", 104, 1700, 1638.4, 64.0, vendor="AMD"), "AMD MI210, or a die of an MI250", "bf16", 181, 1600),
        # ROCm states half of its bandwidth.
        (MI300X, "AMD MI300X", "bf16", 1307.4, 5300),
    ],
)
def test_a_device_is_recognized_and_has_its_public_peaks(
    plane: Plane, model: str, precision: str, teraflops: float, gb_per_second: float
) -> None:
    peaks = peaks_of(plane)
    assert (peaks.model, peaks.memory_gb_per_second) == (model, gb_per_second)
    assert peaks.teraflops[precision] == teraflops  # type: ignore[index]
    assert peaks.compute_source
    assert peaks.compute_source == peaks.memory_source


def test_another_gpu_has_cores_times_clock_and_the_bandwidth_that_its_driver_states() -> None:
    peaks = peaks_of(RTX_5000)
    # 48 cores x 1.815 GHz x 1024 and 128 operations per clock
    assert peaks.teraflops == {"fp16": pytest.approx(89.21, abs=0.01), "fp32": pytest.approx(11.15, abs=0.01)}
    assert peaks.memory_gb_per_second == pytest.approx(448.1)
    assert peaks.model == ""
    assert peaks.compute_source == "cores x clock x operations per clock"
    assert peaks.memory_source == "the driver, as recorded in the profile"


def test_cores_times_clock_agree_with_the_datasheets() -> None:
    for plane, fp16 in ((V100, 125.3), (T4, 65.1), (MI300X, 1307.4)):
        other = Plane(0, "", "gpu", {**plane.stats, "memory_size": 1 << 30}, 1)  # no model has 1 GiB
        assert peaks_of(other).teraflops["fp16"] == pytest.approx(fp16, abs=0.1)


def test_a_bandwidth_that_rocm_halves_is_not_taken_for_a_device_that_is_not_in_the_table() -> None:
    peaks = peaks_of(gpu("9.4", 228, 2100, 2662.4, 128.0, vendor="AMD"))
    assert peaks.memory_gb_per_second is None
    assert peaks.bytes_per_second is None
    assert peaks.teraflops["fp32"] == pytest.approx(122.6, abs=0.1)


def test_a_model_of_which_only_the_bandwidth_is_public_has_arithmetic_by_its_clock() -> None:
    peaks = peaks_of(gpu("9.5", 256, 2400, 4096.0, 288.0, vendor="AMD"))
    assert (peaks.model, peaks.memory_gb_per_second) == ("AMD MI350 series", 8000)
    assert peaks.teraflops["bf16"] == pytest.approx(2516.6, abs=0.1)
    assert (peaks.teraflops["fp8"], peaks.teraflops["fp4"]) == pytest.approx((5033.2, 10066.3), abs=0.1)


@pytest.mark.parametrize("stated", [918.0, 946.7])
def test_a_tpu_has_its_public_peaks_whatever_its_plane_states(stated: float) -> None:
    """Versions of libtpu state different peaks for one chip."""
    stats = {"peak_teraflops_per_second": stated, "peak_hbm_bw_gigabytes_per_second": 1637.993152512}
    peaks = peaks_of(device("tpu", device_type_string="TPU v6 Lite", **stats))
    assert (peaks.model, peaks.teraflops) == ("TPU v6e", {"bf16": 918, "int8": 1836})
    assert (peaks.memory_gb_per_second, peaks.compute_source) == (1638, "Cloud TPU documentation")
    assert (peaks.stated_teraflops, peaks.stated_gb_per_second) == (stated, 1637.993152512)


def test_a_tpu_that_is_in_no_table_has_the_peaks_that_its_plane_states() -> None:
    stats = {"peak_teraflops_per_second": 200.0, "peak_hbm_bw_gigabytes_per_second": 800.0}
    peaks = peaks_of(device("tpu", device_type_string="TPU v99", **stats))
    assert (peaks.model, peaks.teraflops, peaks.memory_gb_per_second) == ("", {"bf16": 200}, 800)
    assert (peaks.compute_source, peaks.memory_source) == ("the trace", "the trace")


def test_a_tpu_that_states_nothing_is_looked_up_by_its_type() -> None:
    zeros = {"peak_teraflops_per_second": 0.0, "peak_hbm_bw_gigabytes_per_second": 0.0}
    peaks = peaks_of(device("tpu", device_type_string="TPU v5 Lite", **zeros))
    assert peaks.flops_per_second("bf16") == 197e12
    assert (peaks.bytes_per_second, peaks.memory_source) == (819e9, "Cloud TPU documentation")


def test_a_device_that_states_nothing_has_no_peaks() -> None:
    peaks = peaks_of(device())
    assert (peaks.model, peaks.teraflops, peaks.memory_gb_per_second) == ("", {}, None)
    assert peaks.flops_per_second("fp32") is None
    assert peaks.flops_per_second(None) is None
    assert vendor_of(device()) == "nvidia"
    assert vendor_of(device("tpu")) == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "peaks.toml",
            '[[device]]\nname = "ours"\ncores = 304\nteraflops = {bf16 = 1000}\n'
            '[[device]]\nname = "another"\nmemory_gb_per_second = 1',
        ),
        ("peaks.json", '{"device": [{"name": "ours", "vendor": "amd", "teraflops": {"bf16": 1000}}]}'),
    ],
)
def test_a_file_of_the_user_comes_first_and_leaves_the_rest(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    peaks = peaks_of(MI300X, read_peaks(path))
    assert (peaks.model, peaks.teraflops["bf16"], peaks.teraflops["fp32"]) == ("ours", 1000, 163.4)
    assert peaks.compute_source == f"{path}, AMD Instinct MI300X datasheet"
    assert peaks.memory_gb_per_second == 5300


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[device]", "is not a table of peaks"),
        ("", "missing required field `device`"),
        ("device = []", "has no devices"),
        ('[[device]]\nname = "x"\nteraflops = {bf17 = 1}', "bf17"),
        ('[[device]]\nname = "x"\nteraflops = {bf16 = -1}', "$.device"),
        ('[[device]]\nname = "x"\nteraflops = {bf16 = inf}', "$.device"),
        ('[[device]]\nname = "x"\nteraflops = {bf16 = nan}', "bf16|not a number|device"),
        ('[[device]]\nname = "x"\nbandwidth = 1', "bandwidth"),
        ('[[device]]\nname = "x"\nmemory_gb_per_second = "fast"', "memory_gb_per_second"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "peaks.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TfperfError) as raised:
        read_peaks(path)
    message = str(raised.value)
    assert message.startswith(str(path))
    assert any(part in message for part in problem.split("|"))
    assert "\n" not in message


def test_a_file_that_is_not_there_or_is_not_text_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TfperfError, match=r"absent\.toml does not exist"):
        read_peaks(tmp_path / "absent.toml")
    with pytest.raises(TfperfError, match="cannot read "):
        read_peaks(tmp_path)
    (tmp_path / "binary.json").write_bytes(b"\xff\x00")
    with pytest.raises(TfperfError, match="not a table of peaks"):
        read_peaks(tmp_path / "binary.json")


def test_every_row_of_the_table_has_a_source_and_a_bandwidth_that_arithmetic_can_need() -> None:
    rows = public_peaks()
    assert len({row.name for row in rows}) == len(rows)
    for row in rows:
        assert row.source, row.name
        assert row.teraflops or row.memory_gb_per_second, row.name
        assert row.device_type or (row.vendor and row.compute_capability and row.cores), row.name


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the references are not here")
def test_the_table_agrees_with_the_references() -> None:
    with (REFERENCE / "peaks.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["device"]: row for row in csv.DictReader(file)}
    ours = {row.name: row for row in public_peaks()}
    compared = 0
    for name, row in rows.items():
        if (model := ours.get(name.replace(" (HGX)", "").replace(" (chip)", ""))) is None:
            continue
        for column, precision in (("tf32_tflops", "tf32"), ("fp16_bf16_tflops", "fp16"), ("fp8_tflops", "fp8")):
            stated = row[column].split(" ")[0]
            if stated and precision in model.teraflops:
                assert model.teraflops[precision] == float(stated), (name, precision)
                compared += 1
        if "-" not in row["hbm_gb_per_s"]:
            assert model.memory_gb_per_second == float(row["hbm_gb_per_s"]), name
            compared += 1
    assert compared > 30
