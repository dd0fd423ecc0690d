"""What is asked of a view: tfprof's options, with their names, and its presets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools
from tfperf.base.patterns import pattern
from tfperf.base.units import without_middle
from tfperf.models.tfprof.attributes import MEASURES, TRAINABLE, OptionError

SELECTABLE = (*sorted((*MEASURES, "device", "input_shapes", "occurrence", "op_types", "tensor_value")),)
ORDERS = ("name", *MEASURES, "occurrence", "depth")
ALL = (".*",)


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a view, by their names in tfprof (OptionsProto); `max_depth` and so on as it has them."""

    max_depth: int = 10
    min_bytes: int = 0
    min_peak_bytes: int = 0
    min_residual_bytes: int = 0
    min_output_bytes: int = 0
    min_micros: int = 0
    min_accelerator_micros: int = 0
    min_cpu_micros: int = 0
    min_params: int = 0
    min_float_ops: int = 0
    min_occurrence: int = 0
    step: int = -1
    order_by: str = "name"
    account_type_regexes: tuple[str, ...] = ALL
    start_name_regexes: tuple[str, ...] = ALL
    trim_name_regexes: tuple[str, ...] = ()
    show_name_regexes: tuple[str, ...] = ALL
    hide_name_regexes: tuple[str, ...] = ()
    account_displayed_op_only: bool = False
    select: tuple[str, ...] = ("micros",)
    output: str = "stdout"

    def __post_init__(self) -> None:
        check(self)


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "parameters": {
        "max_depth": 10_000,
        "account_type_regexes": (TRAINABLE,),
        "account_displayed_op_only": True,
        "select": ("params",),
    },
    "float-operations": {
        "max_depth": 10_000,
        "min_float_ops": 1,
        "order_by": "float_ops",
        "account_displayed_op_only": True,
        "select": ("float_ops",),
    },
    "time-and-memory": {
        "max_depth": 10_000,
        "min_bytes": 1,
        "min_micros": 1,
        "order_by": "micros",
        "account_displayed_op_only": True,
        "select": ("micros", "bytes"),
    },
}
"""The options of `trainable_variables_parameter`, `float_operation` and `time_and_memory`."""


def check(options: Options) -> None:
    """Raise ValueError for an option whose value means nothing, with what it could be."""
    if options.order_by not in ORDERS:
        raise OptionError(f"order_by {options.order_by!r} is unknown: use one of {', '.join(ORDERS)}")
    unknown = [name for name in options.select if name not in SELECTABLE]
    if unknown:
        raise OptionError(f"select {unknown[0]!r} is unknown: use some of {', '.join(SELECTABLE)}")
    if options.step < -1:
        raise OptionError(
            f"step {options.step} does not exist: give the number of a recorded step, or -1 for their mean"
        )
    for name in ("account_type", "start_name", "trim_name", "show_name", "hide_name"):
        for regex in getattr(options, f"{name}_regexes"):
            try:
                pattern(regex)
            except ValueError as error:
                raise OptionError(f"{name}_regexes: {error}") from None
            try:
                pattern(_whole(regex))
            except ValueError:
                raise OptionError(
                    f"{name}_regexes: {without_middle(regex, 60)!r} cannot be compared with whole names: end \\Q with"
                    r" \E, and write fewer than 990 characters"
                ) from None


def options_from(given: Mapping[str, Any]) -> Options:
    """Return options from plain values, as JSON has them; raises ValueError for unknown names and wrong types."""
    unknown = [name for name in given if name not in Options.__struct_fields__]
    if unknown:
        raise OptionError(
            f"{unknown[0]!r} is not an option of tfprof: use some of {', '.join(Options.__struct_fields__)}"
        )
    try:
        return msgspec.convert(dict(given), Options)
    except msgspec.ValidationError as error:
        raise OptionError(str(error).replace(" - at `$.", " in `")) from None


def _whole(regex: str) -> str:
    """Return the expression that matches whole texts."""
    return rf"\A(?:{regex})\z"


def matches(regexes: Sequence[str], texts: Sequence[str], *, ignore_case: Iterable[int] = ()) -> Bools | None:
    """Tell which texts one of the expressions matches as a whole; None where the only one is `.*`, which is all.

    The texts at the places of `ignore_case` are matched whatever the case of their letters.
    """
    if tuple(regexes) == ALL:
        return None
    matched = np.zeros(len(texts), np.bool_)
    either = [*ignore_case]
    for regex in regexes:
        whole = _whole(regex)
        matched |= pattern(whole).found_in(texts)
        if either:
            matched[either] |= pattern(whole, ignore_case=True).found_in([texts[place] for place in either])
    return matched
