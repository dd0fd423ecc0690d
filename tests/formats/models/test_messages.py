"""The messages that tfprof reads, beside those of TensorFlow: a field has the same name and number."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tfperf.formats.models.messages import TENSORFLOW
from tfperf.formats.wire.schema import fields_of

OTHER_NAMES = {"Shape": "TensorShapeProto", "Dimension": "TensorShapeProto.Dim", "CodeDefTrace": "CodeDef.Trace"}
SAME_NAMES = (
    "GraphDef",
    "NodeDef",
    "MetaGraphDef",
    "SavedModel",
    "RunMetadata",
    "StepStats",
    "DeviceStepStats",
    "NodeExecStats",
    "AllocatorMemoryUsed",
    "NodeOutput",
    "TensorDescription",
    "AllocationDescription",
    "MemoryStats",
    "OpLogProto",
    "OpLogEntry",
    "CodeDef",
    "ProfileProto",
    "ProfileNode",
    "ExecProfile",
    "ExecTime",
    "ExecMemory",
    "Tuple",
)
DUMP = """
import importlib.util, json, sys, types
# The package without its __init__, which would load all of TensorFlow.
package = types.ModuleType("tensorflow")
package.__path__ = importlib.util.find_spec("tensorflow").submodule_search_locations
sys.modules["tensorflow"] = package
from tensorflow.core.framework import graph_pb2, node_def_pb2, step_stats_pb2, tensor_shape_pb2, tensor_description_pb2
from tensorflow.core.framework import allocation_description_pb2
from tensorflow.core.profiler import tfprof_log_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2, saved_model_pb2

def add(found, prefix, message):
    found[prefix + message.name] = {field.name: field.number for field in message.fields}
    for nested in message.nested_types:
        add(found, prefix + message.name + ".", nested)

found = {}
modules = (graph_pb2, node_def_pb2, step_stats_pb2, tensor_shape_pb2, tensor_description_pb2,
           allocation_description_pb2, tfprof_log_pb2, config_pb2, meta_graph_pb2, saved_model_pb2)
for module in modules:
    for message in module.DESCRIPTOR.message_types_by_name.values():
        add(found, "", message)
print(json.dumps(found))
"""


@pytest.mark.tensorflow
@pytest.mark.skipif(not find_spec("tensorflow"), reason="TensorFlow is not installed")
def test_fields_have_the_names_and_numbers_of_tensorflow() -> None:
    output = subprocess.run([sys.executable, "-c", DUMP], capture_output=True, text=True, check=True).stdout
    theirs = json.loads(output.splitlines()[-1])
    different = []
    for message in (*SAME_NAMES, *OTHER_NAMES):
        of_theirs = theirs[OTHER_NAMES.get(message, message)]
        for name, number, *_ in fields_of(TENSORFLOW.messages[message]):
            if of_theirs.get(name) != number:
                different.append((message, name, number, of_theirs.get(name)))
    assert not different


def test_all_messages_can_be_built() -> None:
    for name in TENSORFLOW.messages:
        assert TENSORFLOW.message_class(name)().SerializeToString() == b""
