"""Compiled XLA programs in a profile: their protobuf messages, storage and names.

`PROGRAMS` contains all messages about compute, data movement and memory. Field numbers are those of the published
`hlo.proto` and `xla_data.proto`. Undeclared fields are dropped when a program is rewritten: values of constants,
shardings, embedded profiles. `XLA` contains the parts that tfperf reads: shapes, metadata and windows stay serialized,
because they often have equal bytes and are then decoded once.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from msgspec import Struct

from tfperf.formats.wire.schema import Messages, Schema, message_class, parts_of
from tfperf.formats.wire.trace_file import PlaneSpan, TraceFile

PROGRAM_PLANE = "/host:metadata"
HLO_PROTO = "Hlo Proto"
"""The stat that contains a program."""
HBM = 1
"""The chip's main memory in this stat; memory spaces in layouts are numbered differently."""

_PROGRAM: Messages = {
    "HloProto": "hlo_module 1 HloModule, buffer_assignment 3 BufferAssignment",
    "HloModule": (
        "name 1 bytes, entry_computation_name 2 bytes, computations 3 []HloComputation, host_program_shape 4 "
        "ProgramShape, id 5 int64, entry_computation_id 6 int64, schedule 7 Schedule, input_output_alias 8 Aliases, "
        "is_dynamic 11 bool, device_assignment 15 DeviceAssignment, stack_frame_index 17 StackFrameIndex"
    ),
    "HloComputation": (
        "name 1 bytes, instructions 2 []HloInstruction, program_shape 4 ProgramShape, id 5 int64, root_id 6 int64, "
        "is_fusion_computation 7 bool, execution_thread 8 bytes"
    ),
    "HloInstruction": (
        "name 1 bytes, opcode 2 bytes, shape 3 Shape, metadata 7 OpMetadata, parameter_number 9 int64, "
        "fusion_kind 11 bytes, tuple_index 13 int64, dimensions 14 []int64, window 15 Window, "
        "convolution_dimension_numbers 16 ConvolutionDimensions, slice_dimensions 17 []SliceDimensions, "
        "exponent_bits 18 int32, mantissa_bits 19 int32, dynamic_slice_sizes 20 []int64, padding_config 21 Padding, "
        "distribution 23 int32, epsilon 24 float, feature_index 25 int64, channel_id 26 int64, "
        "custom_call_target 28 bytes, outfeed_shape 29 Shape, dot_dimension_numbers 30 DotDimensions, "
        "fft_type 31 int32, fft_length 32 []int64, gather_dimension_numbers 33 GatherDimensions, "
        "gather_slice_sizes 34 []int64, id 35 int64, operand_ids 36 []int64, control_predecessor_ids 37 []int64, "
        "called_computation_ids 38 []int64, backend_config 43 bytes, all_reduce_id 45 int64, "
        "is_host_transfer 47 bool, scatter_dimension_numbers 48 ScatterDimensions, replica_groups 49 []ReplicaGroup, "
        "feature_group_count 50 int64, precision_config 51 Precision, source_target_pairs 52 []SourceTarget, "
        "constrain_layout 56 bool, operand_shapes_with_layout 57 []Shape, batch_group_count 58 int64, "
        "triangular_solve_options 59 TriangularSolve, is_stable 60 bool, cholesky_options 62 Cholesky, "
        "comparison_direction 63 bytes, custom_call_has_side_effect 65 bool, delta 66 int64, "
        "indices_are_sorted 67 bool, unique_indices 69 bool, rng_algorithm 70 int32, use_global_device_ids 71 bool, "
        "comparison_type 72 bytes, output_operand_aliasing 74 []OperandAlias, padding_type 75 int32, "
        "custom_call_schedule 76 int32, custom_call_api_version 77 int32, async_execution_thread 79 bytes, "
        "k 81 int64, largest 85 bool, collective_device_list 87 DeviceList, "
        "ragged_dot_dimension_numbers 90 RaggedDotDimensions, is_reverse 94 bool, num_carries 95 int64"
    ),
    "OpMetadata": (
        "op_type 1 bytes, op_name 2 bytes, source_file 3 bytes, source_line 4 int32, "
        "size_of_generated_code_in_bytes 8 int64, size_of_memory_working_set_in_bytes 9 int64, "
        "deduplicated_name 12 bytes, stack_frame_id 15 int32, scheduling_name 16 bytes, source_end_line 17 int32, "
        "source_column 18 int32, source_end_column 19 int32"
    ),
    "StackFrameIndex": (
        "file_names 1 []bytes, function_names 2 []bytes, file_locations 3 []FileLocation, stack_frames 4 []StackFrame"
    ),
    "FileLocation": (
        "file_name_id 1 int32, function_name_id 2 int32, line 3 int32, column 4 int32, end_line 5 int32, "
        "end_column 6 int32"
    ),
    "StackFrame": "file_location_id 1 int32, parent_frame_id 2 int32",
    "DeviceAssignment": "replica_count 1 int64, computation_count 2 int64, computation_devices 3 []ComputationDevices",
    "ComputationDevices": "replica_device_ids 1 []int64",
}
_SHAPES: Messages = {
    "Shape": (
        "element_type 2 int32, dimensions 3 []int64, tuple_shapes 4 []Shape, layout 5 Layout, "
        "is_dynamic_dimension 6 []bool"
    ),
    "Layout": (
        "minor_to_major 1 []int64, tiles 6 []Tile, element_size_in_bits 7 int64, memory_space 8 int64, "
        "dim_level_types 9 []int32, physical_shape 10 Shape, index_primitive_type 11 int32, "
        "pointer_primitive_type 12 int32, dim_unique 13 []bool, dim_ordered 14 []bool, "
        "dynamic_shape_metadata_prefix_bytes 15 int64, tail_padding_alignment_in_elements 16 int64, "
        "split_configs 17 []Split"
    ),
    "Tile": "dimensions 1 []int64",
    "Split": "dimension 1 int64, split_indices 2 []int64",
    "ProgramShape": "parameters 1 []Shape, result 2 Shape, parameter_names 3 []bytes",
    "Window": "dimensions 1 []WindowDimension",
    "WindowDimension": (
        "size 1 int64, stride 2 int64, padding_low 3 int64, padding_high 4 int64, window_dilation 5 int64, "
        "base_dilation 6 int64, window_reversal 7 bool"
    ),
    "ConvolutionDimensions": (
        "kernel_input_feature_dimension 3 int64, kernel_output_feature_dimension 4 int64, "
        "kernel_spatial_dimensions 6 []int64, input_batch_dimension 7 int64, input_feature_dimension 8 int64, "
        "output_batch_dimension 9 int64, output_feature_dimension 10 int64, input_spatial_dimensions 11 []int64, "
        "output_spatial_dimensions 12 []int64"
    ),
    "SliceDimensions": "start 1 int64, limit 2 int64, stride 3 int64",
    "Padding": "dimensions 1 []PaddingDimension",
    "PaddingDimension": "edge_padding_low 1 int64, edge_padding_high 2 int64, interior_padding 3 int64",
    "DotDimensions": (
        "lhs_contracting_dimensions 1 []int64, rhs_contracting_dimensions 2 []int64, lhs_batch_dimensions 3 []int64, "
        "rhs_batch_dimensions 4 []int64"
    ),
    "RaggedDotDimensions": (
        "dot_dimension_numbers 1 DotDimensions, lhs_ragged_dimensions 2 []int64, rhs_group_dimensions 3 []int64"
    ),
    "GatherDimensions": (
        "offset_dims 1 []int64, collapsed_slice_dims 2 []int64, start_index_map 3 []int64, index_vector_dim 4 int64, "
        "operand_batching_dims 5 []int64, start_indices_batching_dims 6 []int64"
    ),
    "ScatterDimensions": (
        "update_window_dims 1 []int64, inserted_window_dims 2 []int64, scatter_dims_to_operand_dims 3 []int64, "
        "index_vector_dim 4 int64, input_batching_dims 5 []int64, scatter_indices_batching_dims 6 []int64"
    ),
    "ReplicaGroup": "replica_ids 1 []int64",
    "DeviceList": "replica_groups 1 []ReplicaGroup, iota_replica_group_list 2 IotaGroups",
    "IotaGroups": (
        "num_replica_groups 1 int64, num_devices_per_group 2 int64, iota_reshape_dims 3 []int64, "
        "iota_transpose_perm 4 []int32"
    ),
    "Precision": "operand_precision 1 []int32, algorithm 2 int32",
    "SourceTarget": "source 1 int64, target 2 int64",
    "TriangularSolve": "left_side 1 bool, lower 2 bool, unit_diagonal 3 bool, transpose_a 4 int32",
    "Cholesky": "lower 1 bool",
    "OperandAlias": "output_shape_index 1 []int64, operand_index 2 int64, operand_shape_index 3 []int64",
}
_MEMORY: Messages = {
    "Schedule": "sequences 1 []Sequences",
    "Sequences": "key 1 int64, value 2 Sequence",
    "Sequence": "instruction_ids 1 []int64",
    "Aliases": "entries 1 []Alias",
    "Alias": "output_shape_index 1 []int64, parameter_number 2 int64, parameter_shape_index 3 []int64, kind 4 int32",
    "BufferAssignment": (
        "logical_buffers 1 []LogicalBuffer, buffer_aliases 2 []BufferAlias, buffer_allocations 3 []BufferAllocation, "
        "heap_simulator_traces 4 []HeapTrace"
    ),
    "HeapTrace": "events 1 []HeapEvent",
    "HeapEvent": "kind 1 int32, buffer_id 2 int64, share_with_canonical_id 5 int64",
    "LogicalBuffer": "id 1 int64, size 2 int64, defined_at 3 Location, color 4 int64",
    "Location": "instruction_name 2 bytes, shape_index 3 []int64, instruction_id 4 int64",
    "BufferAlias": "source_buffer_id 1 int64, location 2 Location",
    "BufferAllocation": (
        "index 1 int64, size 2 int64, is_thread_local 3 bool, is_entry_computation_parameter 5 bool, "
        "parameter_number 6 int64, maybe_live_out 7 bool, color 8 int64, assigned 9 []Assigned, "
        "parameter_shape_index 10 []int64, is_tuple 11 bool, is_constant 12 bool, "
        "is_parameter_aliased_with_output 13 bool"
    ),
    "Assigned": "logical_buffer_id 1 int64, offset 2 int64, size 3 int64, element_type 4 int32",
}
PROGRAMS = Schema("tfperf.formats.wire.hlo", {**_PROGRAM, **_SHAPES, **_MEMORY})


XLA = Schema(
    "tfperf.formats.hlo",
    {
        "HloSnapshot": "hlo 1 bytes",
        **parts_of(
            PROGRAMS.messages,
            {
                "NamedProto of HloProto": "hlo_module=NamedModule",
                "NamedModule of HloModule": "name computations=[]NamedComputation device_assignment",
                "NamedComputation of HloComputation": "instructions=[]NamedInstruction",
                "NamedInstruction of HloInstruction": "name opcode metadata=NamedMetadata",
                "NamedMetadata of OpMetadata": "op_type op_name",
                "SourcesProto of HloProto": "hlo_module=SourcesModule",
                "SourcesModule of HloModule": "computations=[]SourcesComputation stack_frame_index",
                "SourcesComputation of HloComputation": "instructions=[]SourcesInstruction",
                "SourcesInstruction of HloInstruction": "name metadata=SourceMetadata",
                "SourceMetadata of OpMetadata": "source_file source_line stack_frame_id",
                "ScheduledProto of HloProto": "hlo_module=ScheduledModule",
                "ScheduledModule of HloModule": "computations=[]ScheduledComputation entry_computation_id schedule",
                "ScheduledComputation of HloComputation": "instructions=[]ScheduledInstruction id",
                "ScheduledInstruction of HloInstruction": (
                    "name opcode shape=bytes fusion_kind custom_call_target id called_computation_ids"
                ),
                "Schedule": "sequences",
                "Sequences": "key value",
                "Sequence": "instruction_ids",
                "TypedProto of HloProto": "hlo_module=TypedModule",
                "TypedModule of HloModule": "computations=[]TypedComputation",
                "TypedComputation of HloComputation": "instructions=[]TypedInstruction id",
                "TypedInstruction of HloInstruction": "name opcode shape=bytes id operand_ids called_computation_ids",
                "DeviceAssignment": "computation_devices",
                "ComputationDevices": "replica_device_ids",
                "HloProto": "hlo_module=bytes buffer_assignment=bytes",
                "HloModule": (
                    "name entry_computation_name computations=[]bytes id entry_computation_id input_output_alias "
                    "stack_frame_index"
                ),
                "Aliases": "entries",
                "Alias": "output_shape_index parameter_number",
                "StackFrameIndex": "file_names function_names file_locations stack_frames",
                "FileLocation": "file_name_id function_name_id line",
                "StackFrame": "file_location_id parent_frame_id",
                "HloComputation": "name instructions=[]bytes id root_id",
                "HloInstruction": (
                    "name opcode shape=bytes metadata=bytes parameter_number fusion_kind tuple_index dimensions "
                    "window=bytes convolution_dimension_numbers slice_dimensions dynamic_slice_sizes padding_config "
                    "distribution custom_call_target dot_dimension_numbers fft_length gather_slice_sizes id "
                    "operand_ids called_computation_ids backend_config feature_group_count batch_group_count "
                    "comparison_direction ragged_dot_dimension_numbers replica_groups collective_device_list "
                    "precision_config"
                ),
                "Precision": "operand_precision algorithm",
                "ReplicaGroup": "replica_ids",
                "DeviceList": "replica_groups iota_replica_group_list",
                "IotaGroups": "num_replica_groups num_devices_per_group iota_reshape_dims iota_transpose_perm",
                "Shape": "element_type dimensions tuple_shapes layout is_dynamic_dimension",
                "Layout": "minor_to_major tiles element_size_in_bits memory_space",
                "Tile": "dimensions",
                "OpMetadata": "op_type op_name source_file source_line deduplicated_name stack_frame_id",
                "Window": "dimensions",
                "WindowDimension": (
                    "size stride padding_low padding_high window_dilation base_dilation window_reversal"
                ),
                "SliceDimensions": "start limit stride",
                "Padding": "dimensions",
                "PaddingDimension": "edge_padding_low edge_padding_high interior_padding",
                "DotDimensions": (
                    "lhs_contracting_dimensions rhs_contracting_dimensions lhs_batch_dimensions rhs_batch_dimensions"
                ),
                "RaggedDotDimensions": "dot_dimension_numbers rhs_group_dimensions",
                "ConvolutionDimensions": (
                    "input_batch_dimension input_feature_dimension input_spatial_dimensions "
                    "kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions "
                    "output_batch_dimension output_feature_dimension output_spatial_dimensions"
                ),
                "BufferAssignment": "buffer_allocations",
                "BufferAllocation": (
                    "size is_thread_local is_entry_computation_parameter maybe_live_out color is_constant"
                ),
                "PlanProto of HloProto": "buffer_assignment=Plan",
                "Plan of BufferAssignment": (
                    "logical_buffers buffer_allocations=[]PlannedAllocation heap_simulator_traces"
                ),
                "LogicalBuffer": "id size defined_at",
                "Location": "instruction_name shape_index instruction_id",
                "PlannedAllocation of BufferAllocation": (
                    "size is_thread_local is_entry_computation_parameter maybe_live_out color assigned is_constant"
                ),
                "Assigned": "logical_buffer_id",
                "HeapTrace": "events",
                "HeapEvent": "kind buffer_id share_with_canonical_id",
            },
        ),
    },
)

ELEMENT_TYPES: dict[int, str] = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32",
    12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16", 17: "token", 18: "c128", 19: "f8e5m2",
    20: "f8e4m3fn", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2",
    28: "f8e4m3", 29: "f8e3m4", 30: "s1", 31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu",
}  # fmt: skip
"""`PrimitiveType`; unknown values are rejected."""
OPERAND_PRECISIONS = {1: "high", 2: "highest", 3: "packed_nibble"}
"""`PrecisionConfig.Precision`, except the default."""
ALGORITHMS = {
    1: "dot_any_f8_any_f8_f32", 2: "dot_any_f8_any_f8_f32_fast_accum", 3: "dot_f16_f16_f16", 4: "dot_f16_f16_f32",
    5: "dot_bf16_bf16_bf16", 6: "dot_bf16_bf16_f32", 7: "dot_bf16_bf16_f32_x3", 8: "dot_bf16_bf16_f32_x6",
    9: "dot_tf32_tf32_f32", 10: "dot_tf32_tf32_f32_x3", 11: "dot_f32_f32_f32", 12: "dot_f64_f64_f64",
    13: "dot_bf16_bf16_f32_x9",
}  # fmt: skip
"""`PrecisionConfig.Algorithm`, except an unset one."""


def read_programs(file: TraceFile, span: PlaneSpan) -> dict[int, bytes]:
    """Return the plane's serialized programs by program id; empty if they cannot be parsed."""
    plane = message_class("XPlane")()
    try:
        plane.ParseFromString(file.read_all(span.header))
    except DecodeError:
        return {}
    names = {entry.key: entry.value.name.decode("utf-8", "replace") for entry in plane.stat_metadata}
    programs: dict[int, bytes] = {}
    for entry in plane.event_metadata:
        stats = {names.get(stat.metadata_id, ""): stat for stat in entry.value.stats}
        if HLO_PROTO in stats:
            stat = stats.get("program_id")
            program_id = int(stat.int64_value or stat.uint64_value) if stat is not None else entry.key
            signed = program_id - (1 << 64) if program_id >= 1 << 63 else program_id
            programs[signed] = stats[HLO_PROTO].bytes_value
    return programs


class NamedInstruction(Struct, frozen=True, gc=False):
    """An instruction's opcode and the framework op that it was compiled from."""

    opcode: str
    op_name: str
    op_type: str


class NamedProgram(Struct, frozen=True):
    """A program's name, instructions by name, and device numbers (empty: unknown).

    `device_of` has the device of each replica or partition; empty if the program has several of both.
    """

    module: str
    instructions: dict[str, NamedInstruction]
    devices: tuple[int, ...] = ()
    device_of: tuple[int, ...] = ()


def read_names(serialized: bytes) -> NamedProgram | None:
    """Return the names in a serialized `HloProto`, or None for other bytes."""
    try:
        module = XLA.message_class("NamedProto").FromString(serialized).hlo_module
    except DecodeError:
        return None
    instructions = {
        _text(item.name): NamedInstruction(
            _text(item.opcode), _text(item.metadata.op_name), _text(item.metadata.op_type)
        )
        for computation in module.computations
        for item in computation.instructions
    }
    partitions = module.device_assignment.computation_devices
    device_of = tuple(each for of_one in partitions for each in of_one.replica_device_ids)
    is_flat = len(partitions) in (1, len(device_of))
    devices = tuple(sorted({*device_of}))
    return NamedProgram(_text(module.name), instructions, devices, device_of if is_flat else ())


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def accessed_bytes(breakdown: str, space: int = HBM) -> int | None:
    """Return the bytes that one run accesses in a memory space; `breakdown` is the stat, one byte per character.

    0: it accesses only other memories, as the start of a host-to-device copy does. None: the stat is damaged.
    """
    try:
        accesses = message_class("MemoryAccesses").FromString(breakdown.encode("latin-1")).accesses
    except (DecodeError, UnicodeEncodeError):
        return None
    sizes = [access.bytes for access in accesses if access.space == space]
    return sum(sizes) if all(size >= 0 for size in sizes) else None
