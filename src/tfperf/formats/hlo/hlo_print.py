"""Write instructions of XLA programs as XLA's text, which `hlo_text.py` reads back.

The text has the attributes that tfperf reads. Values of constants, shardings and similar parts are not in the model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfperf.formats.hlo.model import Computation, Instruction, Module, WindowDim


def instruction_text(module: Module, computation: Computation, place: int) -> str:
    """Return an instruction in one line: `%a = f32[8]{0} add(f32[8]{0} %b, f32[8]{0} %c)`."""
    instruction = computation.instructions[place]
    inputs = ", ".join(f"{operand.shape} %{operand.name}" for operand in computation.operands_of(instruction))
    if instruction.opcode == "parameter":
        inputs = str(instruction.parameter)
    elif instruction.opcode == "constant":
        inputs = "{...}"
    root = "ROOT " * (place == computation.root)
    attributes = "".join(f", {each}" for each in _attributes(module, instruction))
    return f"{root}%{instruction.name} = {instruction.shape} {instruction.opcode}({inputs}){attributes}"


def computation_text(module: Module, computation: Computation) -> str:
    """Return a computation with its instructions, in program order."""
    head = "ENTRY " * (computation is module.entry)
    rows = (f"  {instruction_text(module, computation, at)}\n" for at in range(len(computation.instructions)))
    return f"{head}%{computation.name} {{\n{''.join(rows)}}}\n"


def module_text(module: Module) -> str:
    """Return a program: its computations, callees first."""
    texts = (computation_text(module, module.computations[at]) for at in module.callees_first)
    return "\n".join((f"HloModule {module.name}\n", *texts))


_CALLS = {"fusion": ("calls",), "while": ("body", "condition"), "select-and-scatter": ("select", "scatter")}
"""Attributes for the calls of an opcode, in the order of `Instruction.calls`; others: `to_apply`, or a list."""


def _attributes(module: Module, each: Instruction) -> Iterator[str]:
    yield from _of_dimensions(each)
    yield from _of_kind(each)
    yield from _calls(module, each)
    if each.target:
        yield f"custom_call_target={_quoted(each.target)}"
    metadata, line = each.metadata, each.metadata.source.line
    texts = {"op_type": metadata.op_type, "op_name": metadata.op_name, "source_file": metadata.source.file}
    facts = [f"{key}={_quoted(text)}" for key, text in texts.items() if text]
    if line:
        facts.append(f"source_line={line}")
    if metadata.deduplicated_name:
        facts.append(f"deduplicated_name={_quoted(metadata.deduplicated_name)}")
    if facts:
        yield f"metadata={{{' '.join(facts)}}}"
    if each.backend_config:
        yield f"backend_config={_quoted(each.backend_config)}"


def _of_dimensions(each: Instruction) -> Iterator[str]:
    if each.dimensions:
        one = each.opcode == "iota" and len(each.dimensions) == 1
        yield f"iota_dimension={each.dimensions[0]}" if one else f"dimensions={_numbers(each.dimensions)}"
    if each.window:
        yield f"window={{{_window(each.window)}}}"
    if (dims := each.convolution) is not None:
        inputs = _labels(dims.input_batch, dims.input_feature, dims.input_spatial, "bf")
        kernel = _labels(dims.kernel_input_feature, dims.kernel_output_feature, dims.kernel_spatial, "io")
        output = _labels(dims.output_batch, dims.output_feature, dims.output_spatial, "bf")
        yield f"dim_labels={inputs}_{kernel}->{output}"
    for name, count in (("feature_group_count", each.feature_groups), ("batch_group_count", each.batch_groups)):
        if count != 1:
            yield f"{name}={count}"
    if each.slices:
        parts = (f"[{start}:{limit}{f':{stride}' * (stride != 1)}]" for start, limit, stride in each.slices)
        yield f"slice={{{', '.join(parts)}}}"
    if each.padding:
        parts = (f"{low}_{high}{f'_{inner}' * bool(inner)}" for low, high, inner in each.padding)
        yield f"padding={'x'.join(parts)}"
    if each.slice_sizes:
        yield f"{'dynamic_' * (each.opcode == 'dynamic-slice')}slice_sizes={_numbers(each.slice_sizes)}"


def _of_kind(each: Instruction) -> Iterator[str]:
    if each.fft_length:
        yield f"fft_length={_numbers(each.fft_length)}"
    if each.opcode == "get-tuple-element":
        yield f"index={each.tuple_index}"
    if each.direction:
        yield f"direction={each.direction}"
    if each.distribution:
        yield f"distribution=rng_{each.distribution}"
    if each.dot is not None:
        dot = each.dot
        sides = {
            "lhs_contracting_dims": dot.lhs_contracting,
            "rhs_contracting_dims": dot.rhs_contracting,
            "lhs_batch_dims": dot.lhs_batch,
            "rhs_batch_dims": dot.rhs_batch,
            "rhs_group_dims": dot.rhs_group,
        }
        yield from (f"{name}={_numbers(dims)}" for name, dims in sides.items() if dims)
    if each.precision.operands:
        yield f"operand_precision={{{','.join(each.precision.operands)}}}"
    if each.precision.algorithm:
        yield f"algorithm={each.precision.algorithm}"
    if each.fusion_kind:
        yield f"kind={each.fusion_kind}"


def _calls(module: Module, each: Instruction) -> Iterator[str]:
    called = [f"%{module.computations[at].name}" for at in each.calls]
    names = _CALLS.get(each.opcode, ("calls",) if each.opcode.startswith("async") else ())
    if called and len(names) == len(called):
        yield from (f"{name}={call}" for name, call in zip(names, called, strict=True))
    elif len(called) == 1:
        yield f"to_apply={called[0]}"
    elif called:
        kind = "branch_computations" if each.opcode == "conditional" else "called_computations"
        yield f"{kind}={{{', '.join(called)}}}"


def _numbers(values: Sequence[int]) -> str:
    return f"{{{','.join(map(str, values))}}}"


def _window(dims: Sequence[WindowDim]) -> str:
    parts = [f"size={'x'.join(str(dim.size) for dim in dims)}"]
    columns = (
        ("stride", [str(dim.stride) for dim in dims], "1"),
        ("pad", [f"{dim.low}_{dim.high}" for dim in dims], "0_0"),
        ("lhs_dilate", [str(dim.base_dilation) for dim in dims], "1"),
        ("rhs_dilate", [str(dim.window_dilation) for dim in dims], "1"),
        ("rhs_reversal", [str(int(dim.reversed)) for dim in dims], "0"),
    )
    parts += [f"{name}={'x'.join(values)}" for name, values, usual in columns if any(each != usual for each in values)]
    return " ".join(parts)


def _labels(first: int, second: int, spatial: Sequence[int], names: str) -> str:
    found = {first: names[0], second: names[1], **{at: str(number) for number, at in enumerate(spatial)}}
    return "".join(found[at] for at in sorted(found))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
