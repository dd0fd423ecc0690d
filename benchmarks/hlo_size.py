"""Time and memory of reading, costing and judging (lint) a large program of XLA.

    python benchmarks/hlo_size.py [INSTRUCTIONS]

Makes a program (by default of 50,000 instructions: fused layers with a dot, a convolution, a reduction and elementwise
work, each with a name of its own, op metadata and a source line), and prints how long it takes to read it, to count
what it computes and moves and to apply all rules, and the most memory that the process had.
"""

from __future__ import annotations

import resource
import sys
import time

from tfperf.formats.hlo.cost import cost_of
from tfperf.formats.hlo.hlo_proto import read_proto
from tfperf.formats.hlo.messages import XLA
from tfperf.models.linter.rule import Ledger
from tfperf.models.linter.rules import RULES, check_program

PER_LAYER = 10

Row = tuple[str, bytes, list[int], dict[str, object]]
"""Opcode, shape, operands and further fields of an instruction."""


def array(*dims: int) -> bytes:
    """Return the shape of an array of 32-bit floats, serialized."""
    shape = XLA.message_class("Shape")(element_type=11, dimensions=dims)
    shape.layout.minor_to_major.extend(reversed(range(len(dims))))
    return bytes(shape.SerializeToString())


def window() -> bytes:
    """Return a window of 3 x 3 with padding, serialized."""
    made = XLA.message_class("Window")()
    for _ in range(2):
        made.dimensions.add(size=3, stride=1, padding_low=1, padding_high=1, window_dilation=1, base_dilation=1)
    return bytes(made.SerializeToString())


IMAGE, KERNEL, VECTOR, SCALAR = array(8, 32, 32, 16), array(3, 3, 16, 16), array(16), array()


def parameters() -> list[Row]:
    """Return the instructions that stand for an image, a kernel and a bias."""
    shapes = IMAGE, KERNEL, VECTOR
    return [("parameter", shape, [], {"parameter_number": at}) for at, shape in enumerate(shapes)]


class Maker:
    """Makes computations, with ids as XLA numbers them."""

    def __init__(self) -> None:
        self.module = XLA.message_class("HloModule")(name=b"jit_step", id=1, entry_computation_id=1)
        self.count = 0

    def computation(self, number: int, rows: list[Row]) -> None:
        """Add a computation; operands are positions in it."""
        made = XLA.message_class("HloComputation")(name=f"computation.{number}".encode(), id=number)
        for at, (opcode, shape, operands, fields) in enumerate(rows):
            self.count += 1
            key = number << 32 | at
            metadata = XLA.message_class("OpMetadata")(
                op_name=f"jit(step)/layer_{number}/{opcode}_{at}".encode(), source_file=b"model.py", source_line=number
            )
            item = XLA.message_class("HloInstruction")(
                name=f"{opcode}.{self.count}".encode(),
                opcode=opcode.encode(),
                shape=shape,
                id=key,
                operand_ids=[number << 32 | operand for operand in operands],
                metadata=metadata.SerializeToString(),
                **fields,
            )
            made.instructions.append(item.SerializeToString())
            made.root_id = key
        self.module.computations.append(made.SerializeToString())

    def layer(self, number: int) -> None:
        """Add a fusion of a convolution with its bias and activation, and a sum."""
        labels = XLA.message_class("ConvolutionDimensions")(
            input_feature_dimension=3, input_spatial_dimensions=[1, 2], kernel_input_feature_dimension=2,
            kernel_output_feature_dimension=3, kernel_spatial_dimensions=[0, 1], output_feature_dimension=3,
            output_spatial_dimensions=[1, 2],
        )  # fmt: skip
        self.computation(
            number,
            [
                *parameters(),
                ("convolution", IMAGE, [0, 1], {"window": window(), "convolution_dimension_numbers": labels}),
                ("broadcast", IMAGE, [2], {"dimensions": [3]}),
                ("add", IMAGE, [3, 4], {}),
                ("constant", SCALAR, [], {}),
                ("broadcast", IMAGE, [6], {}),
                ("maximum", IMAGE, [5, 7], {}),
                ("tanh", IMAGE, [8], {}),
            ],
        )


def make(instructions: int) -> bytes:
    """Return a serialized program of about so many instructions."""
    maker = Maker()
    layers = instructions // (PER_LAYER + 1)
    rows = parameters()
    for number in range(2, layers + 2):
        maker.layer(number)
        last = len(rows) - 1 if number > 2 else 0
        rows.append(("fusion", IMAGE, [last, 1, 2], {"called_computation_ids": [number], "fusion_kind": b"kOutput"}))
    maker.computation(1, rows)
    module = maker.module.SerializeToString()
    return bytes(XLA.message_class("HloProto")(hlo_module=module).SerializeToString())


def main(instructions: int) -> int:
    """Print time and memory."""
    data = make(instructions)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.perf_counter()
    module = read_proto(data)
    middle = time.perf_counter()
    cost = cost_of(module)
    costed = time.perf_counter()
    ledger = Ledger(RULES)
    check_program(module, ledger, "tpu")
    end = time.perf_counter()
    count = sum(len(each.instructions) for each in module.computations)
    print(f"{count:,} instructions in {len(module.computations):,} computations, {len(data) / 1e6:.1f} MB")
    print(f"read   {middle - start:6.2f} s")
    print(f"costed {costed - middle:6.2f} s: {(cost.entry.flops or 0) / 1e12:.3f} TFLOP")
    print(f"linted {end - costed:6.2f} s: {len(ledger.violations):,} findings in {len(ledger.judged):,} instructions")
    print(f"all    {end - start:6.2f} s")
    print(f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:6.0f} MB, {before:.0f} MB of it before")
    return 0


if __name__ == "__main__":
    if len(sys.argv) > 2 or not all(word.isdigit() for word in sys.argv[1:]):
        sys.exit(__doc__)
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) == 2 else 50_000))
