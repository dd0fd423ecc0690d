"""Options of a view, with tfprof's names, and its presets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from msgspec import Struct

from tfperf.base.arrays import Bools
from tfperf.base.patterns import pattern
from tfperf.base.units import without_middle
from tfperf.models.tfprof import OptionError

Attribute = Literal[
    "bytes",
    "peak_bytes",
    "residual_bytes",
    "output_bytes",
    "micros",
    "accelerator_micros",
    "cpu_micros",
    "params",
    "float_ops",
    "runs",
    "definitions",
]
ATTRIBUTES: tuple[Attribute, ...] = get_args(Attribute)
PLACE: Mapping[str, int] = {attribute: place for place, attribute in enumerate(ATTRIBUTES)}
MEASURES = ATTRIBUTES[: PLACE["runs"]]
"""Attributes that can be selected, sorted by, and given a minimum (`min_bytes`)."""
TRAINABLE = "_trainable_variables"  # type of trainable variables in the log


SELECTABLE = (*sorted((*MEASURES, "device", "input_shapes", "occurrence", "op_types", "tensor_value")),)
ORDERS = ("name", *MEASURES, "occurrence", "depth")
ALL = (".*",)


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of a view, with the names and meanings of tfprof's OptionsProto."""

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
"""Options of `trainable_variables_parameter`, `float_operation` and `time_and_memory`."""


def check(options: Options) -> None:
    """Raise ValueError for an invalid option value, with the valid ones."""
    if options.order_by not in ORDERS:
        raise OptionError(f"order_by {options.order_by!r} is unknown: use one of {', '.join(ORDERS)}")
    unknown = [name for name in options.select if name not in SELECTABLE]
    if unknown:
        raise OptionError(f"select {unknown[0]!r} is unknown: use one or more of {', '.join(SELECTABLE)}")
    if options.step < -1:
        raise OptionError(
            f"step {options.step} does not exist: use the number of a recorded step, or -1 for their mean"
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
                    r" \E, and use fewer than 990 characters"
                ) from None


def options_from(given: Mapping[str, Any]) -> Options:
    """Return options from JSON-like values; raises ValueError for unknown names and wrong types."""
    unknown = [name for name in given if name not in Options.__struct_fields__]
    if unknown:
        raise OptionError(
            f"{unknown[0]!r} is not a tfprof option: use one or more of {', '.join(Options.__struct_fields__)}"
        )
    try:
        return msgspec.convert(dict(given), Options)
    except msgspec.ValidationError as error:
        raise OptionError(str(error).replace(" - at `$.", " in `")) from None


def _whole(regex: str) -> str:
    return rf"\A(?:{regex})\z"


def matches(regexes: Sequence[str], texts: Sequence[str], *, ignore_case: Iterable[int] = ()) -> Bools | None:
    """Return which texts fully match one of the expressions; None if the only one is `.*`, which matches all.

    Texts at the indices in `ignore_case` are matched case-insensitively.
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


class ProfileOptionBuilder:
    """Builds options for the methods of `Profiler`; each method returns the builder.

    builder = ProfileOptionBuilder(ProfileOptionBuilder.time_and_memory())
    profiler.profile_graph(builder.with_step(70).with_timeline_output("timeline.json").build())

    The defaults are: the given options, or the time of all nodes by name, to a depth of 100. `Profiler` validates
    values when they are used.
    """

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        self._options: dict[str, Any] = {"max_depth": 100, "select": ["micros"], **_EVERYTHING}
        if options is not None:
            self._options = dict(options)

    @staticmethod
    def trainable_variables_parameter() -> dict[str, Any]:
        """Return the options that show the parameters of trainable variables."""
        return _preset("parameters")

    @staticmethod
    def float_operation() -> dict[str, Any]:
        """Return the options that show float operations, the largest first."""
        return _preset("float-operations")

    @staticmethod
    def time_and_memory(  # noqa: PLR0913, PLR0917
        min_micros: int = 1,
        min_bytes: int = 1,
        min_accelerator_micros: int = 0,
        min_cpu_micros: int = 0,
        min_peak_bytes: int = 0,
        min_residual_bytes: int = 0,
        min_output_bytes: int = 0,
    ) -> dict[str, Any]:
        """Return the options that show time and requested memory, the longest time first.

        Rows below a minimum (microseconds, bytes) are left out, also from the totals.
        """
        return {
            **_preset("time-and-memory"),
            "min_micros": min_micros,
            "min_bytes": min_bytes,
            "min_accelerator_micros": min_accelerator_micros,
            "min_cpu_micros": min_cpu_micros,
            "min_peak_bytes": min_peak_bytes,
            "min_residual_bytes": min_residual_bytes,
            "min_output_bytes": min_output_bytes,
        }

    def build(self) -> dict[str, Any]:
        """Return the options; later calls do not change them."""
        return {name: [*value] if isinstance(value, list) else value for name, value in self._options.items()}

    def with_max_depth(self, max_depth: int) -> ProfileOptionBuilder:
        """Limit the levels of the tree, or the rows of the op view."""
        return self._with(max_depth=max_depth)

    def with_min_memory(
        self, min_bytes: int = 0, min_peak_bytes: int = 0, min_residual_bytes: int = 0, min_output_bytes: int = 0
    ) -> ProfileOptionBuilder:
        """Show rows with at least this many bytes: requested, peak, residual, output."""
        return self._with(
            min_bytes=min_bytes,
            min_peak_bytes=min_peak_bytes,
            min_residual_bytes=min_residual_bytes,
            min_output_bytes=min_output_bytes,
        )

    def with_min_execution_time(
        self, min_micros: int = 0, min_accelerator_micros: int = 0, min_cpu_micros: int = 0
    ) -> ProfileOptionBuilder:
        """Show rows with at least this many microseconds: in total, on accelerators, on the CPU."""
        return self._with(
            min_micros=min_micros, min_accelerator_micros=min_accelerator_micros, min_cpu_micros=min_cpu_micros
        )

    def with_min_parameters(self, min_params: int) -> ProfileOptionBuilder:
        """Show rows with at least this many parameters."""
        return self._with(min_params=min_params)

    def with_min_occurrence(self, min_occurrence: int) -> ProfileOptionBuilder:
        """Show rows with at least this many runs, or op types with at least this many nodes (op view)."""
        return self._with(min_occurrence=min_occurrence)

    def with_min_float_operations(self, min_float_ops: int) -> ProfileOptionBuilder:
        """Show rows with at least this many float operations."""
        return self._with(min_float_ops=min_float_ops)

    def with_accounted_types(self, account_type_regexes: Sequence[str]) -> ProfileOptionBuilder:
        """Count nodes with one of these types: an op, a device, or a type of the log (RE2, full match)."""
        return self._with(account_type_regexes=[*account_type_regexes])

    def with_node_names(
        self,
        start_name_regexes: Sequence[str] | None = None,
        show_name_regexes: Sequence[str] | None = None,
        hide_name_regexes: Sequence[str] | None = None,
        trim_name_regexes: Sequence[str] | None = None,
    ) -> ProfileOptionBuilder:
        """Start at, show, hide, or trim below the names that match (RE2, full match); None changes nothing."""
        given = {
            "start_name_regexes": start_name_regexes,
            "show_name_regexes": show_name_regexes,
            "hide_name_regexes": hide_name_regexes,
            "trim_name_regexes": trim_name_regexes,
        }
        return self._with(**{name: [*regexes] for name, regexes in given.items() if regexes is not None})

    def account_displayed_op_only(self, is_true: bool) -> ProfileOptionBuilder:
        """Count only displayed nodes, or all counted nodes below a row, shown or not."""
        return self._with(account_displayed_op_only=is_true)

    def with_step(self, step: int) -> ProfileOptionBuilder:
        """Show the step with this number, or the mean of all steps for -1."""
        return self._with(step=step)

    def with_empty_output(self) -> ProfileOptionBuilder:
        """Print and write nothing."""
        return self._with(output="none")

    def with_stdout_output(self) -> ProfileOptionBuilder:
        """Print the view."""
        return self._with(output="stdout")

    def with_file_output(self, outfile: str) -> ProfileOptionBuilder:
        """Write the view into a text file."""
        return self._with(output=f"file:outfile={outfile}")

    def with_timeline_output(self, timeline_file: str) -> ProfileOptionBuilder:
        """Write a trace file for Perfetto and chrome://tracing; not available for the op view."""
        return self._with(output=f"timeline:outfile={timeline_file}")

    def with_pprof_output(self, pprof_file: str) -> ProfileOptionBuilder:
        """Write a pprof profile; only for the code view with one selected attribute."""
        return self._with(output=f"pprof:outfile={pprof_file}")

    def order_by(self, attribute: str) -> ProfileOptionBuilder:
        """Order rows by `name`, or by an attribute, the largest total first."""
        return self._with(order_by=attribute)

    def select(self, attributes: Sequence[str]) -> ProfileOptionBuilder:
        """Show these attributes."""
        return self._with(select=[*attributes])

    def _with(self, **options: Any) -> ProfileOptionBuilder:
        self._options |= options
        return self


_EVERYTHING: Mapping[str, Any] = {
    "min_bytes": 0,
    "min_micros": 0,
    "min_params": 0,
    "min_float_ops": 0,
    "min_occurrence": 0,
    "order_by": "name",
    "account_type_regexes": [*ALL],
    "start_name_regexes": [*ALL],
    "trim_name_regexes": [],
    "show_name_regexes": [*ALL],
    "hide_name_regexes": [],
    "account_displayed_op_only": False,
    "step": -1,
    "output": "stdout",
}


def _preset(name: str) -> dict[str, Any]:
    preset = {key: [*value] if isinstance(value, tuple) else value for key, value in PRESETS[name].items()}
    return {key: [*value] if isinstance(value, list) else value for key, value in _EVERYTHING.items()} | preset
