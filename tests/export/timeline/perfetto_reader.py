"""Reads Perfetto's files back with the classes of the `perfetto` package, by the rules of its own reader."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import DebugAnnotation, Trace, TrackEvent


@dataclass
class Slice:
    track: int
    name: str
    start_ns: int
    end_ns: int = -1
    depth: int = 0
    category: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    instant: bool = False


@dataclass
class Read:
    tracks: dict[int, Any] = field(default_factory=dict)
    """Track descriptors by uuid."""
    slices: list[Slice] = field(default_factory=list)
    """In the order in which they start in the file."""
    flows: list[tuple[Slice, Slice]] = field(default_factory=list)
    counters: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def on(self, name: str) -> list[Slice]:
        """The slices of the tracks of that name."""
        uuids = {uuid for uuid, track in self.tracks.items() if track.name == name}
        return [slice_ for slice_ in self.slices if slice_.track in uuids]

    def track(self, name: str) -> Any:
        (track,) = [track for track in self.tracks.values() if track.name == name]
        return track


def packets_of(data: bytes) -> Iterator[Any]:
    trace = Trace()
    trace.ParseFromString(data)
    for packet in trace.packet:
        if packet.HasField("compressed_packets"):
            yield from packets_of(zlib.decompress(packet.compressed_packets))
        else:
            yield packet


def read_perfetto(path: Path) -> Read:
    """Packets are read in order of time, those of one time in order of the file; a stack for each track."""
    read = Read()
    names: dict[tuple[int, str], dict[int, str]] = {}
    timed = []
    for packet in packets_of(path.read_bytes()):
        sequence = packet.trusted_packet_sequence_id
        assert sequence
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in read.tracks, "a track is described twice"
            read.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
        if packet.HasField("interned_data"):
            for kind in ("event_categories", "event_names", "debug_annotation_names", "debug_annotation_string_values"):
                for item in getattr(packet.interned_data, kind):
                    text = item.str.decode() if kind.endswith("values") else item.name
                    assert names.setdefault((sequence, kind), {}).setdefault(item.iid, text) == text
        if packet.HasField("track_event"):
            assert packet.HasField("timestamp")
            timed.append(packet)
    timed.sort(key=lambda packet: packet.timestamp)
    _Replay(read, names).run(timed)
    return read


@dataclass
class _Replay:
    read: Read
    names: dict[tuple[int, str], dict[int, str]]
    stacks: dict[int, list[Slice]] = field(default_factory=dict)
    open_flows: dict[int, Slice] = field(default_factory=dict)

    def run(self, packets: list[Any]) -> None:
        for packet in packets:
            event, time = packet.track_event, packet.timestamp
            assert event.track_uuid in self.read.tracks
            if event.type == TrackEvent.TYPE_COUNTER:
                assert self.read.tracks[event.track_uuid].HasField("counter")
                self.read.counters.setdefault(event.track_uuid, []).append((time, event.counter_value))
                continue
            stack = self.stacks.setdefault(event.track_uuid, [])
            if event.type == TrackEvent.TYPE_SLICE_END:
                stack.pop().end_ns = time
                continue
            slice_ = self._start(packet, stack)
            for flow in event.flow_ids:
                assert flow not in self.open_flows
                self.open_flows[flow] = slice_
            self.read.flows += [(self.open_flows.pop(flow), slice_) for flow in event.terminating_flow_ids]
        assert not any(self.stacks.values()), "slices that never end"
        assert not self.open_flows, "flows that never end"

    def _start(self, packet: Any, stack: list[Slice]) -> Slice:
        event, sequence = packet.track_event, packet.trusted_packet_sequence_id
        assert packet.sequence_flags == 2
        (category,) = event.category_iids
        slice_ = Slice(
            event.track_uuid,
            self.names[sequence, "event_names"][event.name_iid],
            packet.timestamp,
            depth=len(stack),
            category=self.names[sequence, "event_categories"][category],
            args={
                self.names[sequence, "debug_annotation_names"][arg.name_iid]: self._value(sequence, arg)
                for arg in event.debug_annotations
            },
        )
        assert len(slice_.args) == len(event.debug_annotations)
        self.read.slices.append(slice_)
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append(slice_)
        else:
            assert event.type == TrackEvent.TYPE_INSTANT
            slice_.end_ns, slice_.instant = packet.timestamp, True
        return slice_

    def _value(self, sequence: int, annotation: DebugAnnotation) -> Any:
        kind = annotation.WhichOneof("value")
        if kind == "string_value_iid":
            return self.names[sequence, "debug_annotation_string_values"][annotation.string_value_iid]
        assert kind in ("int_value", "uint_value", "double_value")
        return getattr(annotation, kind)
