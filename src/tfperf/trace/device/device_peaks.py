"""Peak performance of a device: operations per second by number type, and memory bytes per second.

The first source with a value applies: the user's file, the table of public peaks (`device_peaks.toml`), the plane of a
TPU, and, for the arithmetic of a GPU that is not in the table, cores x clock x operations per clock. Bandwidths from
drivers known to be wrong are ignored. Versions of libtpu state different peaks for one chip, so its plane is displayed
next to the public value and used only without one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, field

from tfperf.base.errors import TfperfError
from tfperf.trace.host_trace import Plane

Precision = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8"]
"""The number type in which operations are counted."""
STATED = "the trace"
"""The source of values in the plane of a TPU."""
_Figure = Annotated[float, Meta(gt=0, le=1e9)]
_Count = Annotated[int, Meta(gt=0, le=1 << 20)]


class DeviceModel(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One device of a table of peaks: the properties that identify it, and its peaks."""

    name: str
    source: str = ""
    vendor: str = ""
    compute_capability: str = ""
    """`9.4`; on AMD that is gfx942."""
    device_type: str = ""
    """Device type in the plane of a TPU."""
    cores: _Count | None = None
    memory_gib: tuple[_Figure, ...] = ()
    """Available memory sizes, in GiB."""
    stated_gb_per_second: _Figure | None = None
    """The bandwidth that its driver states, if that distinguishes models."""
    teraflops: dict[Precision, _Figure] = field(default_factory=dict)
    memory_gb_per_second: _Figure | None = None


class _Table(Struct, frozen=True, forbid_unknown_fields=True):
    device: tuple[DeviceModel, ...]


class DevicePeaks(Struct, frozen=True, kw_only=True):
    """Peaks of one device, each with its source; unknown ones are missing."""

    model: str = ""
    """The recognized model; empty if the device was not recognized."""
    teraflops: Mapping[Precision, float] = field(default_factory=dict)
    """10^12 operations per second."""
    memory_gb_per_second: float | None = None
    compute_source: str = ""
    memory_source: str = ""
    stated_teraflops: float | None = None
    """The bfloat16 value in the plane of a TPU, used or not."""
    stated_gb_per_second: float | None = None

    def flops_per_second(self, precision: Precision | None) -> float | None:
        """Return the peak for a number type; None if unknown."""
        peak = self.teraflops.get(precision) if precision else None
        return None if peak is None else peak * 1e12

    @property
    def bytes_per_second(self) -> float | None:
        """Return the memory bandwidth of the device."""
        return None if self.memory_gb_per_second is None else self.memory_gb_per_second * 1e9


def read_peaks(path: Path) -> tuple[DeviceModel, ...]:
    """Return the devices of a user's file, TOML or (by its suffix) JSON. Raises TfperfError."""
    try:
        text = path.read_text(encoding="utf-8")
        decode = msgspec.json.decode if path.suffix.lower() == ".json" else msgspec.toml.decode
        models = decode(text, type=_Table).device
    except FileNotFoundError as error:
        raise TfperfError(f"{path} does not exist") from error
    except OSError as error:
        raise TfperfError(f"cannot read {path}: {error.strerror or error}; check its permissions") from error
    except (ValueError, RecursionError) as error:
        problem = " ".join(str(error).split())
        raise TfperfError(f"{path} is not a table of peaks: {problem}; see the example in docs/roofline.md") from error
    for model in models:
        figures = (*model.teraflops.values(), *model.memory_gib, model.memory_gb_per_second, model.stated_gb_per_second)
        if any(figure is not None and math.isnan(figure) for figure in figures):
            raise TfperfError(f"{path}: a value of {model.name[:80]!r} is not a number")
    if not models:
        raise TfperfError(f"{path} has no devices; see the example in docs/roofline.md")
    return tuple(msgspec.structs.replace(model, source=str(path)) for model in models)


@cache
def public_peaks() -> tuple[DeviceModel, ...]:
    """Return the devices of the table of public peaks."""
    return msgspec.toml.decode(Path(__file__).with_suffix(".toml").read_bytes(), type=_Table).device


def peaks_of(plane: Plane, own: Sequence[DeviceModel] = ()) -> DevicePeaks:
    """Return the peaks of the device of a plane; `own` are those of the user's file, which take precedence."""
    users, public = _recognized(plane, own), _recognized(plane, public_peaks())
    stated, bandwidth = _stated_by_tpu(plane), DevicePeaks()
    rate = _number(plane, "memory_bandwidth")
    if rate and not (vendor(plane) == "amd" and capability(plane) in _HALVED):
        bandwidth = DevicePeaks(memory_gb_per_second=rate / 1e9, memory_source="the driver, as recorded in the profile")
    by_clock, clock, cores = DevicePeaks(), _number(plane, "clock_rate"), _number(plane, "core_count")
    if clock and cores and not (public is not None and public.teraflops):
        per_clock = _PER_CLOCK.get((vendor(plane), capability(plane)), {})
        peaks = {precision: count * cores * clock * 1e3 / 1e12 for precision, count in per_clock.items()}
        by_clock = DevicePeaks(teraflops=peaks, compute_source="cores x clock x operations per clock")
    layers = [_of_model(users), _of_model(public), stated, by_clock, bandwidth]
    teraflops: dict[Precision, float] = {}
    compute_sources: dict[str, None] = {}
    for layer in layers:
        new = {precision: peak for precision, peak in layer.teraflops.items() if precision not in teraflops}
        # All numbers come from one source, except those the user's file omits: two ways of counting must not be mixed.
        if new and (not teraflops or [*compute_sources] == [layers[0].compute_source]):
            teraflops |= new
            compute_sources[layer.compute_source] = None
    memory = next((layer for layer in layers if layer.memory_gb_per_second is not None), DevicePeaks())
    return DevicePeaks(
        model=next((layer.model for layer in layers if layer.model), ""),
        teraflops=teraflops,
        memory_gb_per_second=memory.memory_gb_per_second,
        compute_source=", ".join(compute_sources),
        memory_source=memory.memory_source,
        stated_teraflops=stated.teraflops.get("bf16"),
        stated_gb_per_second=stated.memory_gb_per_second,
    )


# --- which model a plane is ---

_SIZE_TOLERANCE, _RATE_TOLERANCE = 0.12, 0.03


def _recognized(plane: Plane, models: Sequence[DeviceModel]) -> DeviceModel | None:
    return next((model for model in models if _is_model(plane, model)), None)


def _is_model(plane: Plane, model: DeviceModel) -> bool:
    """Return whether the plane has all properties that identify the model."""
    size, rate = _number(plane, "memory_size"), _number(plane, "memory_bandwidth")
    sizes = [abs(size / 2**30 - gib) <= _SIZE_TOLERANCE * gib for gib in model.memory_gib] or [True]
    stated = model.stated_gb_per_second
    return (
        any(sizes)
        and model.vendor in ("", vendor(plane))
        and model.compute_capability in ("", capability(plane))
        and model.cores in (None, _number(plane, "core_count"))
        and (stated is None or abs(rate / 1e9 - stated) <= _RATE_TOLERANCE * stated)
        and (
            not model.device_type or str(plane.stats.get("device_type_string", "")).lower() == model.device_type.lower()
        )
    )


def vendor(plane: Plane) -> str:
    """Return the vendor of a GPU: `amd`, or `nvidia`, which older planes do not state; empty for a TPU."""
    if plane.kind != "gpu":
        return ""
    return str(plane.stats.get("device_vendor", "")).lower() or "nvidia"


def capability(plane: Plane) -> str:
    """Return the compute capability of a GPU, such as `9.0`; empty if unknown."""
    major, minor = (plane.stats.get(f"compute_cap_{part}") for part in ("major", "minor"))
    return f"{major}.{minor}" if isinstance(major, int) and isinstance(minor, int) else ""


def _number(plane: Plane, stat: str) -> float:
    value = plane.stats.get(stat)
    return value if isinstance(value, (int, float)) and math.isfinite(value) and value > 0 else 0


# --- the sources ---


def _of_model(model: DeviceModel | None) -> DevicePeaks:
    if model is None:
        return DevicePeaks()
    return DevicePeaks(
        model=model.name,
        teraflops=model.teraflops,
        memory_gb_per_second=model.memory_gb_per_second,
        compute_source=model.source,
        memory_source=model.source,
    )


def _stated_by_tpu(plane: Plane) -> DevicePeaks:
    if plane.kind != "tpu":
        return DevicePeaks()
    teraflops, rate = (_number(plane, f"peak_{figure}_per_second") for figure in ("teraflops", "hbm_bw_gigabytes"))
    return DevicePeaks(
        teraflops={"bf16": float(teraflops)} if teraflops else {},
        memory_gb_per_second=float(rate) if rate else None,
        compute_source=STATED,
        memory_source=STATED,
    )


_AMPERE: Mapping[Precision, int] = {"fp32": 256, "fp16": 1024, "bf16": 1024}
_PER_CLOCK: Mapping[tuple[str, str], Mapping[Precision, int]] = {
    ("nvidia", "7.0"): {"fp32": 128, "fp16": 1024},
    ("nvidia", "7.5"): {"fp32": 128, "fp16": 1024},
    ("nvidia", "8.0"): {"fp32": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096},
    ("nvidia", "8.6"): _AMPERE,
    ("nvidia", "8.9"): _AMPERE,
    ("nvidia", "9.0"): {"fp32": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192},
    ("amd", "9.0"): {"fp32": 128, "fp16": 1024, "bf16": 1024, "int8": 1024},
    ("amd", "9.4"): {"fp32": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096, "int8": 4096},
    ("amd", "9.5"): {"fp32": 256, "fp16": 4096, "bf16": 4096, "fp8": 8192, "fp4": 16384, "int8": 8192},
}
"""Dense operations per clock and core, by vendor and compute capability."""
_HALVED = ("9.4", "9.5")
"""AMD GPUs for which ROCm states half of the bandwidth."""
