"""The messages of XLA that describe programs, as far as tfperf reads them.

Field numbers are those of the published `hlo.proto` and `xla_data.proto`. What occurs often with the same bytes
(shapes, metadata, windows) is declared as bytes, so that it is decoded once. Text is bytes, since it may be invalid.
"""

from __future__ import annotations

from tfperf.wire.schema import Schema

XLA = Schema(
    "tfperf.programs",
    {
        # Names alone.
        "NamedProto": "hlo_module 1 NamedModule",
        "NamedModule": "name 1 bytes, computations 3 []NamedComputation",
        "NamedComputation": "instructions 2 []NamedInstruction",
        "NamedInstruction": "name 1 bytes, opcode 2 bytes, metadata 7 NamedMetadata",
        "NamedMetadata": "op_type 1 bytes, op_name 2 bytes",
        # Whole programs.
        "HloSnapshot": "hlo 1 bytes",
        "HloProto": "hlo_module 1 bytes, buffer_assignment 3 bytes",
        "HloModule": (
            "name 1 bytes, entry_computation_name 2 bytes, computations 3 []bytes, id 5 int64, "
            "entry_computation_id 6 int64, input_output_alias 8 Aliases, stack_frame_index 17 StackFrameIndex"
        ),
        "Aliases": "entries 1 []Alias",
        "Alias": "parameter_number 2 int64",
        "StackFrameIndex": (
            "file_names 1 []bytes, function_names 2 []bytes, file_locations 3 []FileLocation, "
            "stack_frames 4 []StackFrame"
        ),
        "FileLocation": "file_name_id 1 int64, function_name_id 2 int64, line 3 int64",
        "StackFrame": "file_location_id 1 int64, parent_frame_id 2 int64",
        "HloComputation": "name 1 bytes, instructions 2 []bytes, id 5 int64, root_id 6 int64",
        "HloInstruction": (
            "name 1 bytes, opcode 2 bytes, shape 3 bytes, metadata 7 bytes, parameter_number 9 int64, "
            "fusion_kind 11 bytes, tuple_index 13 int64, dimensions 14 []int64, window 15 bytes, "
            "convolution_dimension_numbers 16 ConvolutionDimensions, slice_dimensions 17 []SliceDimension, "
            "dynamic_slice_sizes 20 []int64, padding_config 21 Padding, distribution 23 int64, "
            "custom_call_target 28 bytes, dot_dimension_numbers 30 DotDimensions, fft_length 32 []int64, "
            "gather_slice_sizes 34 []int64, id 35 int64, operand_ids 36 []int64, called_computation_ids 38 []int64, "
            "backend_config 43 bytes, feature_group_count 50 int64, batch_group_count 58 int64, "
            "comparison_direction 63 bytes"
        ),
        "Shape": (
            "element_type 2 int64, dimensions 3 []int64, tuple_shapes 4 []Shape, layout 5 Layout, "
            "is_dynamic_dimension 6 []bool"
        ),
        "Layout": "minor_to_major 1 []int64, tiles 6 []Tile, element_size_in_bits 7 int64, memory_space 8 int64",
        "Tile": "dimensions 1 []int64",
        "OpMetadata": (
            "op_type 1 bytes, op_name 2 bytes, source_file 3 bytes, source_line 4 int64, deduplicated_name 12 bytes, "
            "stack_frame_id 15 int64"
        ),
        "Window": "dimensions 1 []WindowDimension",
        "WindowDimension": (
            "size 1 int64, stride 2 int64, padding_low 3 int64, padding_high 4 int64, window_dilation 5 int64, "
            "base_dilation 6 int64, window_reversal 7 bool"
        ),
        "SliceDimension": "start 1 int64, limit 2 int64, stride 3 int64",
        "Padding": "dimensions 1 []PaddingDimension",
        "PaddingDimension": "edge_padding_low 1 int64, edge_padding_high 2 int64, interior_padding 3 int64",
        "DotDimensions": (
            "lhs_contracting_dimensions 1 []int64, rhs_contracting_dimensions 2 []int64, "
            "lhs_batch_dimensions 3 []int64, rhs_batch_dimensions 4 []int64"
        ),
        "ConvolutionDimensions": (
            "input_batch_dimension 7 int64, input_feature_dimension 8 int64, input_spatial_dimensions 11 []int64, "
            "kernel_input_feature_dimension 3 int64, kernel_output_feature_dimension 4 int64, "
            "kernel_spatial_dimensions 6 []int64, output_batch_dimension 9 int64, output_feature_dimension 10 int64, "
            "output_spatial_dimensions 12 []int64"
        ),
        "BufferAssignment": "buffer_allocations 3 []BufferAllocation",
        "BufferAllocation": (
            "index 1 int64, size 2 int64, is_thread_local 3 bool, is_entry_computation_parameter 5 bool, "
            "maybe_live_out 7 bool, is_tuple 11 bool, is_constant 12 bool"
        ),
    },
)

ELEMENT_TYPES: dict[int, str] = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16", 11: "f32",
    12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16", 17: "token", 18: "c128", 19: "f8e5m2",
    20: "f8e4m3fn", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz", 25: "f8e4m3fnuz", 26: "s2", 27: "u2",
    28: "f8e4m3", 29: "f8e3m4", 30: "s1", 31: "u1", 32: "f4e2m1fn", 33: "f8e8m0fnu",
}  # fmt: skip
"""`PrimitiveType`; one that was not known when this was written is refused."""
