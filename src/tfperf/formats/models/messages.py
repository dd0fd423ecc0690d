"""Protobuf messages of TensorFlow graphs and runs, with the fields that tfprof reads.

Field numbers are from the published `.proto` files. All varints are declared int64, because their encoding is the same.
A nested message that is decoded later, or not at all, is declared as bytes.
"""

from __future__ import annotations

from tfperf.formats.wire.schema import Schema

TENSORFLOW = Schema(
    "tfperf.models.tfprof",
    {
        "GraphDef": "node 1 []bytes, library 2 bytes",
        "GraphDefOutline": "",
        "MetaGraphDef": "graph_def 2 []bytes",
        "MetaGraphDefOutline": "",
        "SavedModel": "meta_graphs 2 []bytes",
        "SavedModelOutline": "",
        "NodeDef": "name 1 bytes, op 2 bytes, input 3 []bytes, device 4 bytes, attr 5 []NodeDefAttr",
        "NodeDefOutline": "attr 5 []NodeDefAttrOutline",
        "NodeDefAttr": "key 1 bytes, value 2 bytes",
        "NodeDefAttrOutline": "",
        "TextGraphDef": "node 1 []TextNodeDef",
        "TextNodeDef": "name 1 bytes, op 2 bytes, input 3 []bytes, device 4 bytes, attr 5 []TextAttr",
        "TextAttr": "key 1 bytes, value 2 TextAttrValue",
        "TextAttrValue": "list 1 TextShapeList, s 2 bytes, type 6 int64, shape 7 TextShape",
        "TextShapeList": "shape 7 []TextShape",
        "TextShape": "dim 2 []Dimension, unknown_rank 3 bool",
        "ShapeAttr": "list 1 ShapeList, shape 7 Shape",
        "TypeAttr": "type 6 int64",
        "ShapeList": "shape 7 []Shape",
        "Shape": "dim 2 []Dimension, unknown_rank 3 int64",
        "Dimension": "size 1 int64",
        # Graphs with the attributes of their nodes, and functions.
        "WholeGraph": "node 1 []WholeNode, library 2 FunctionLibrary",
        "WholeNode": "name 1 bytes, op 2 bytes, input 3 []bytes, device 4 bytes, attr 5 []WholeAttr",
        "WholeAttr": "key 1 bytes, value 2 AttrValue",
        "AttrValue": (
            "list 1 AttrList, s 2 bytes, i 3 int64, b 5 bool, type 6 int64, shape 7 TextShape, tensor 8 ConstTensor, "
            "func 10 FunctionName"
        ),
        "AttrList": "i 3 []int64, shape 7 []TextShape",
        "ConstTensor": (
            "dtype 1 int64, tensor_shape 2 TextShape, tensor_content 4 bytes, int_val 7 []int64, int64_val 10 []int64"
        ),
        "FunctionName": "name 1 bytes",
        "FunctionLibrary": "function 1 []FunctionDef",
        "FunctionDef": "signature 1 Signature, node_def 3 []WholeNode, ret 4 []Returned, arg_attr 7 []AttrsOfArg",
        "Signature": "name 1 bytes, input_arg 2 []Arg, output_arg 3 []Arg",
        "Arg": "name 1 bytes, type 3 int64",
        "Returned": "key 1 bytes, value 2 bytes",
        "AttrsOfArg": "key 1 int64, value 2 ArgAttrs",
        "ArgAttrs": "attr 1 []WholeAttr",
        "RunMetadata": "step_stats 1 []bytes",
        "RunMetadataOutline": "",
        "StepStats": "dev_stats 1 []bytes",
        "StepStatsOutline": "",
        "DeviceStepStats": "device 1 bytes, node_stats 2 []bytes",
        "DeviceStepStatsOutline": "",
        "NodeExecStats": (
            "node_name 1 bytes, all_start_micros 2 int64, op_end_rel_micros 4 int64, memory 6 []AllocatorMemoryUsed, "
            "output 7 []NodeOutput, timeline_label 8 bytes, memory_stats 12 MemoryStats, all_start_nanos 13 int64, "
            "op_end_rel_nanos 15 int64"
        ),
        "AllocatorMemoryUsed": (
            "allocator_name 1 bytes, total_bytes 2 int64, peak_bytes 3 int64, live_bytes 4 int64, "
            "allocator_bytes_in_use 5 int64"
        ),
        "NodeMemory": (
            "all_start_micros 2 int64, op_end_rel_micros 4 int64, memory 6 []AllocatorRecord, "
            "memory_stats 12 MemoryStats"
        ),
        "AllocatorRecord": (
            "allocator_name 1 bytes, allocator_bytes_in_use 5 int64, allocation_records 6 []AllocationRecord"
        ),
        "AllocationRecord": "alloc_micros 1 int64, alloc_bytes 2 int64",
        "NodeOutput": "tensor_description 3 TensorDescription",
        "TensorDescription": "allocation_description 4 AllocationDescription",
        "AllocationDescription": "requested_bytes 1 int64, allocated_bytes 2 int64",
        "MemoryStats": "temp_memory_size 1 int64, persistent_memory_size 3 int64",
        "OpLogProto": "log_entries 1 []OpLogEntry, id_to_string 2 []StringOfId",
        "OpLogEntry": "name 1 bytes, float_ops 2 int64, types 3 []bytes, code_def 4 CodeDef",
        "CodeDef": "traces 1 []CodeDefTrace",
        "CodeDefTrace": "lineno 2 int64, file_id 6 int64, function_id 7 int64",
        "StringOfId": "key 1 int64, value 2 bytes",
        "ProfileProto": "nodes 1 []ProfileNodeOfId, has_trace 2 int64, steps 3 []int64, id_to_string 4 []StringOfId",
        "ProfileNodeOfId": "key 1 int64, value 2 bytes",
        "ProfileNode": (
            "name 1 bytes, op 9 bytes, id 13 int64, inputs 2 []IndexAndId, input_shapes 16 []TupleOfIndex, "
            "output_shapes 15 []TupleOfIndex, src_output_index 14 []IdAndIndex, shape 4 []int64, op_types 5 []bytes, "
            "canonical_device 6 bytes, float_ops 8 int64, trace 10 CodeDef, attrs 11 []NodeDefAttr, "
            "execs 12 []ExecOfStep"
        ),
        "IndexAndId": "key 1 int64, value 2 int64",
        "IdAndIndex": "key 1 int64, value 2 int64",
        "TupleOfIndex": "key 1 int64, value 2 Tuple",
        "Tuple": "int64_values 1 []int64",
        "ExecOfStep": "key 1 int64, value 2 ExecProfile",
        "ExecProfile": (
            "run_count 1 int64, all_start_micros 2 int64, latest_end_micros 3 int64, "
            "accelerator_execs 4 []TimesOfDevice, cpu_execs 5 []TimesOfDevice, devices 6 []bytes, "
            "memory_execs 7 []ExecMemory"
        ),
        "TimesOfDevice": "key 1 bytes, value 2 ExecTime",
        "ExecTime": "times 1 []Tuple",
        "BundleHeader": "num_shards 1 int64, endianness 2 int64",
        "BundleEntry": (
            "dtype 1 int64, shape 2 Shape, shard_id 3 int64, offset 4 int64, size 5 int64, crc32c 6 fixed32, "
            "slices 7 []TensorSlice"
        ),
        "TensorSlice": "extent 1 []TensorSliceExtent",
        "TensorSliceExtent": "start 1 int64, length 2 int64",
        "SavedTensorSlices": "meta 1 SavedTensorSliceMeta, data 2 SavedSlice",
        "SavedTensorSliceMeta": "tensor 1 []SavedSliceMeta",
        "SavedSliceMeta": "name 1 bytes, shape 2 Shape, type 3 int64",
        "SavedSlice": "name 1 bytes, slice 2 TensorSlice, data 3 TensorValues",
        "TensorValues": (
            "float_val 5 []float, double_val 6 []double, int_val 7 []int64, int64_val 10 []int64, bool_val 11 []int64, "
            "half_val 13 []int64, uint32_val 16 []int64, uint64_val 17 []uint64"
        ),
        "MetaGraphFacts": "collection_def 4 []CollectionOfName, object_graph_def 7 bytes",
        "SavedModelFacts": "meta_graphs 2 []MetaGraphFacts",
        "CollectionOfName": "key 1 bytes, value 2 Collection",
        "Collection": "bytes_list 2 BytesList",
        "BytesList": "value 1 []bytes",
        "VariableDef": "variable_name 1 bytes, save_slice_info_def 4 SaveSliceInfo",
        "SaveSliceInfo": "full_name 1 bytes",
        "ObjectGraph": "nodes 1 []ObjectNode",
        "ObjectNode": (
            "children 1 []ObjectReference, attributes 2 []ObjectAttribute, slot_variables 3 []SlotVariable, "
            "variable 7 SavedVariable"
        ),
        "ObjectReference": "node_id 1 int64, local_name 2 bytes",
        "ObjectAttribute": "name 1 bytes, full_name 2 bytes, checkpoint_key 3 bytes",
        "SlotVariable": "slot_variable_node_id 3 int64",
        "SavedVariable": "dtype 1 int64, shape 2 Shape, trainable 3 int64, name 6 bytes",
        "ExecMemory": "requested_bytes 6 int64, peak_bytes 7 int64, residual_bytes 8 int64, output_bytes 9 int64",
        "ProfileNodeMemory": "name 1 bytes, execs 12 []MemoryOfStep",
        "MemoryOfStep": "key 1 int64, value 2 StepMemory",
        "StepMemory": "memory_execs 7 []MemoryUse, allocations 11 []AllocationRecord",
        "MemoryUse": "memory_micros 1 int64, accelerator_persistent_bytes 5 int64, allocator_bytes_in_use 10 int64",
    },
)
