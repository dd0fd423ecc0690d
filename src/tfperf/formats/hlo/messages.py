"""The messages of XLA that describe programs, as far as tfperf reads them.

They are parts of those in `wire/hlo_schema.py`, which has all fields with their numbers. What occurs often with the
same bytes (shapes, metadata, windows) is left as bytes, so that it is decoded once.
"""

from __future__ import annotations

from tfperf.formats.wire.hlo_schema import PROGRAMS
from tfperf.formats.wire.schema import Schema, parts_of

XLA = Schema(
    "tfperf.formats.hlo",
    {
        "HloSnapshot": "hlo 1 bytes",
        **parts_of(
            PROGRAMS.messages,
            {
                # Names alone.
                "NamedProto of HloProto": "hlo_module=NamedModule",
                "NamedModule of HloModule": "name computations=[]NamedComputation device_assignment",
                "NamedComputation of HloComputation": "instructions=[]NamedInstruction",
                "NamedInstruction of HloInstruction": "name opcode metadata=NamedMetadata",
                "NamedMetadata of OpMetadata": "op_type op_name",
                "DeviceAssignment": "computation_devices",
                "ComputationDevices": "replica_device_ids",
                # Whole programs.
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
                    "comparison_direction"
                ),
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
                "ConvolutionDimensions": (
                    "input_batch_dimension input_feature_dimension input_spatial_dimensions "
                    "kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions "
                    "output_batch_dimension output_feature_dimension output_spatial_dimensions"
                ),
                "BufferAssignment": "buffer_allocations",
                "BufferAllocation": (
                    "size is_thread_local is_entry_computation_parameter maybe_live_out color is_constant"
                ),
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
"""`PrimitiveType`; one that was not known when this was written is refused."""
