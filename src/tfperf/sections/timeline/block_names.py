"""What blocks of a picture say: the name, kind and op of each event, and what is known of work of devices."""

from __future__ import annotations

import numpy as np

from tfperf.analysis.results import Host
from tfperf.base.arrays import Int32s, Int64s, distinct_index, lookup
from tfperf.report.step_picture import BlockName
from tfperf.sections.timeline.ribbon import TITLES
from tfperf.trace.event_names import is_hand_over, is_input_function, is_iterator, is_python_frame, parse_op
from tfperf.trace.host.activities import Activity, device_codes, host_codes, tpu_codes
from tfperf.trace.host_trace import HostTrace
from tfperf.trace.steps.breakdown import CATEGORY_ACTIVITIES

PIPELINE, PYTHON, CALL, IDLE = "Input pipeline", "Python", "Call", "Idle"
"""Kinds of blocks that are in no category."""
_LONGEST = 200
_MOST_NOTES = 20_000
_KINDS = {activity: TITLES[key] for key, activities in CATEGORY_ACTIVITIES.items() for activity in activities}


class BlockTexts:
    """The names and notes of the events of a host, made as pictures ask for them; they number those that they have."""

    def __init__(self, host: Host) -> None:
        self._trace = host.trace
        self._work = host.device_work
        self._host_codes = host_codes(host.trace, "corrected", has_device=bool(host.trace.devices))
        self._device_codes = _device_codes(host.trace)
        self.names: dict[BlockName, int] = {}
        self.notes: dict[str, int] = {}

    def of(self, rows: Int64s) -> tuple[Int32s, Int32s]:
        """Return for each row of the trace the numbers of its name and of its note; -1: no note."""
        trace = self._trace
        code = np.where(trace.on_host[rows], self._host_codes[trace.name[rows]], 0).astype(np.int64)
        if self._device_codes is not None:
            code = np.where(trace.on_host[rows], code, self._device_codes[rows])
        on_device = (~trace.on_host[rows]).astype(np.int64)
        keys = (trace.name[rows].astype(np.int64) * len(Activity) + code) * 2 + on_device
        values, index = distinct_index(keys)
        numbers = [self._name(int(key)) for key in values.tolist()]
        name = np.array(numbers, np.int32)[index] if len(values) else np.zeros(0, np.int32)
        return name, self._notes(rows)

    def gap(self, cause: str) -> int:
        """Return the number of the name of gaps that have this cause."""
        return self.names.setdefault(BlockName(cause, f"{IDLE}: {cause}"), len(self.names))

    def note(self, text: str) -> int:
        """Return the number of a note, -1 of an empty one, and of one too many."""
        if not text or (len(self.notes) >= _MOST_NOTES and text not in self.notes):
            return -1
        return self.notes.setdefault(text, len(self.notes))

    def _name(self, key: int) -> int:
        """Return the number of the name of an event with this key."""
        rest, on_device = divmod(key, 2)
        name_index, code = divmod(rest, len(Activity))
        text = self._trace.names[name_index]
        shown = (self._trace.display_names[name_index] if len(text) > _LONGEST else "") or text
        activity = Activity(code)
        if on_device:
            block = BlockName(shown[:_LONGEST], _KINDS.get(activity, TITLES["device_compute"]))
        else:
            op = parse_op(text)
            is_op = op.kind in ("tensorflow", "jax")
            type_, name = (op.type[:_LONGEST], op.name[:_LONGEST]) if is_op else ("", "")
            block = BlockName(shown[:_LONGEST], _host_kind(text, activity), type_, name)
        return self.names.setdefault(block, len(self.names))

    def _notes(self, rows: Int64s) -> Int32s:
        """Return the numbers of the notes of work of devices: its op, and how it was launched or copied."""
        note = np.full(len(rows), -1, np.int32)
        place = lookup(self._work.rows, rows)
        at = np.flatnonzero(place >= 0)
        if not len(at):
            return note
        trace, event = self._trace, rows[at]
        columns = [self._work.op[place[at]]]
        texts = [tuple(f"op {op.name} ({op.type})" for op in self._work.ops)]
        for stat in ("kernel_details", "memcpy_details"):
            columns.append(trace.number_at(stat, event, -1))
            texts.append(trace.stat(stat).texts)
        key = np.zeros(len(at), np.int64)
        for column, words in zip(columns, texts, strict=True):
            key = key * (len(words) + 1) + column + 1
        values, index = distinct_index(key)
        numbers = [self._note(int(value), texts) for value in values.tolist()]
        note[at] = np.array(numbers, np.int32)[index]
        return note

    def _note(self, key: int, texts: list[tuple[str, ...]]) -> int:
        parts = []
        for words in reversed(texts):
            key, place = divmod(key, len(words) + 1)
            if place:
                parts.append(words[place - 1][:_LONGEST])
        return self.note("; ".join(part for part in reversed(parts) if part))


def _device_codes(trace: HostTrace) -> Int64s | None:
    if trace.device_kind == "gpu":
        return device_codes(trace, "corrected").astype(np.int64)
    return tpu_codes(trace).astype(np.int64) if trace.device_kind == "tpu" else None


def _host_kind(name: str, activity: Activity) -> str:
    if is_iterator(name) or is_hand_over(name) or is_input_function(name):
        return PIPELINE
    if is_python_frame(name):
        return PYTHON
    return _KINDS.get(activity, CALL)
