"""The rules of TPUs, each declared once."""

from __future__ import annotations

from collections.abc import Sequence

from tfperf.models.linter.rule import BOTH, Reads, Rule, needs_of

TPU_NOTES = (
    "Cloud TPU documentation, Profile TensorFlow workloads, notes on the performance of TensorFlow functions "
    "(Japanese page, translated)"
)
_GENERAL = "own rule, from the general tiling of a TPU (8 x 128)"


def _tpu(
    id: str,
    title: str,
    level: str,
    *,
    says: str,
    source: str = TPU_NOTES,
    reads: Sequence[Reads] = ("graph",),
    **texts: str,
) -> Rule:
    return Rule(
        id=id,
        title=title,
        device="tpu",
        level=level,
        reads=frozenset(reads),
        needs=texts.pop("needs", needs_of(reads)),
        says=says,
        source=source,
        **texts,
    )


TPU_RULES = (
    _tpu(
        "TPU-MM-1",
        "Free transpose beside a matrix product",
        "info",
        when="a transpose is read by matrix products only and exchanges the last two dimensions, or reads a product",
        advice="nothing to change",
        unless="another op reads it too",
        says="Transposing either operand of tf.matmul, or its result, is effectively free.",
    ),
    _tpu(
        "TPU-MM-2",
        "Fusion into a matrix product",
        "low, info",
        when="bias and activation follow a matrix product; low: an op that cannot be fused reads what is before them",
        advice="let such ops read what comes after the activation",
        unless="the compiler may fuse less where a result is used far away",
        says="tf.matmul supports fusion into its input and output.",
    ),
    _tpu(
        "TPU-MM-3",
        "Padding of a matrix product",
        "high, medium",
        reads=BOTH,
        when="an operand or the result is at least 1.25 times as large when padded, and 1 MiB or more",
        advice="make the last two dimensions multiples of 128, the smaller one of 8",
        unless="the product takes little of the step, or its sizes are given",
        says="Tensors are stored in tiles of 8 by 128.",
        source=_GENERAL,
    ),
    _tpu(
        "TPU-CV-1",
        "Padding of a convolution",
        "high, medium, info",
        reads=BOTH,
        when=(
            "batch or features of activation, result or a large kernel are rounded up: to 128 and 8 if most have a "
            "batch of 64 or more, else to 8 and 128; in gradients of kernels the other way round"
        ),
        advice="make batch and features multiples of these; of an input of 3 channels, space-to-depth on the host",
        unless="the compiler may choose otherwise where the neighbours of the convolution ask for it",
        says="For activations, batch and feature dimensions are padded to multiples of 8 or 128.",
    ),
    _tpu(
        "TPU-CV-2",
        "Batch sizes that suit neither layout",
        "medium, info",
        when="the usual batch is 48 to 63, or convolutions have several batch sizes",
        advice="choose the batch size for the layout that takes less, the same in all convolutions",
        unless="other batch sizes are there on purpose, and take little time",
        says="XLA tracks the most common batch size of the convolutions in the module.",
    ),
    _tpu(
        "TPU-CV-3",
        "Free transpose beside a convolution",
        "info",
        when=(
            "a transpose exchanges only batch and features of an activation or result of a convolution, or the "
            "features of its kernel"
        ),
        advice="nothing to change",
        unless="another op reads it too",
        says="An activation can be transposed freely if only its feature and batch dimensions are exchanged.",
    ),
    _tpu(
        "TPU-CV-4",
        "Fusion into a convolution",
        "low, info",
        when="as TPU-MM-2, of a convolution",
        advice="let ops that cannot be fused read what comes after the activation",
        unless="the compiler may fuse less where a result is used far away",
        says="tf.nn.conv_n_d supports fusion into result, activation and kernel.",
    ),
    _tpu(
        "TPU-PL-1",
        "Padding of pooling",
        "high, medium, info",
        reads=BOTH,
        when="batch or features of its input or result are rounded up, as in the convolution before or after it",
        advice="make batch and features multiples of 8 or 128, as for the convolutions beside it",
        unless="the neighbours of the pooling ask for another layout",
        says="The layout of pooling usually matches the convolutions that feed it or read it.",
    ),
    _tpu(
        "TPU-PL-2",
        "Gradient of max pooling",
        "info",
        reads=BOTH,
        when="a gradient of max pooling",
        advice="try average pooling",
        unless="accuracy needs the maxima: this changes the model",
        says="The gradient of tf.nn.max_pool may be slower than that of tf.nn.avg_pool.",
    ),
    _tpu(
        "TPU-CS-1",
        "Cut along a padded dimension",
        "medium, info",
        reads=BOTH,
        when="a slice, split or concatenation has a boundary in a padded dimension that is no multiple of its padding",
        advice="cut along a dimension that is not padded, or at multiples",
        unless="the compiler fuses the cut into what reads it",
        says="Slices and concatenations in padded dimensions are expensive.",
    ),
    _tpu(
        "TPU-CS-2",
        "Needless slice or concatenation",
        "medium",
        when="slices of a tensor are put together as they were, or a slice takes out what a concatenation put in",
        advice="use the tensor that is there already",
        unless="the pieces between are changed by code that the graph does not show",
        says="Avoid unnecessary slices and concatenations.",
    ),
    _tpu(
        "TPU-TR-1",
        "Transpose that moves data",
        "medium, info",
        reads=BOTH,
        when="a transpose that neither TPU-MM-1 nor TPU-CV-3 says is free, and not only of dimensions of size 1",
        advice="keep one order of dimensions, or let a product or convolution read the tensor as it is",
        unless="the op after it would be slower in the other order",
        says="Transposes of operands and results of tf.matmul and tf.conv_n_d can be free; others are not named so.",
    ),
    _tpu(
        "TPU-TR-2",
        "Transposes that undo each other",
        "medium, info",
        when="a transpose and its inverse, with elementwise ops between that nothing else reads",
        advice="remove both",
        unless="a vector in between is added along a dimension that moves",
        says="Transposes of operands and results of tf.matmul and tf.conv_n_d can be free; others are not named so.",
    ),
    _tpu(
        "TPU-BS-1",
        "Batch, space and depth exchanged",
        "medium",
        when="an op between batch, space and depth; not space-to-depth of an input of up to 4 channels",
        advice="do it on the host, or choose a model without it",
        unless="it makes an input of a few channels wide enough for a convolution",
        says="These are expensive, since data move from padded to unpadded dimensions or back.",
    ),
    _tpu(
        "TPU-RS-1",
        "Reshape of padded dimensions",
        "medium",
        when="the last two dimensions change, and a quarter or more of 1 MiB or more is padding before or after",
        advice="keep the last two dimensions, or make them multiples of 8 and 128 before and after",
        unless="the compiler can make it a view (a bitcast)",
        says="A reshape may be expensive when it moves data within a padded dimension.",
    ),
    _tpu(
        "TPU-RS-2",
        "Input that is mostly padding",
        "high",
        reads=BOTH,
        when=(
            "an input of three dimensions or more that the host passes in each step is at least twice as large when "
            "padded, and 1 MiB or more; arguments of functions are judged where the graph says who calls them"
        ),
        advice="send it as one dimension, and reshape it on the device",
        unless="it stays on the device from step to step, as weights do",
        says="With much padding, it helps to reshape to rank 1 on the host, and back on the device.",
    ),
    _tpu(
        "TPU-RN-1",
        "Categorical random numbers",
        "medium",
        reads=BOTH,
        when="an op that draws from a categorical or multinomial distribution",
        advice="draw on the host, or from a uniform distribution",
        unless="it takes little of the step",
        says="Categorical and multinomial pseudorandom numbers are quite expensive.",
    ),
    _tpu(
        "TPU-RN-2",
        "Normal random numbers",
        "info",
        reads=BOTH,
        when="an op that draws from a normal or truncated normal distribution",
        advice="use a uniform distribution where the model allows it",
        unless="it takes little of the step",
        says="Normal pseudorandom numbers cost a little more than uniform or Bernoulli ones.",
    ),
    _tpu(
        "TPU-RN-3",
        "Uniform random numbers",
        "info",
        reads=BOTH,
        when="an op that draws from a uniform distribution; Bernoulli is one with a comparison",
        advice="nothing to change",
        unless="it takes little of the step",
        says="Uniform and Bernoulli pseudorandom numbers are very fast.",
    ),
    _tpu(
        "TPU-RD-1",
        "Reductions one after the other",
        "low",
        reads=BOTH,
        when="a reduction whose only reader is a reduction of the same kind",
        advice="reduce over the dimensions of both at once",
        unless="what is between them is read elsewhere too",
        says="Rewrite sequential chains of reductions as parallel ones where possible.",
    ),
    _tpu(
        "TPU-RD-2",
        "Reductions that wait for each other",
        "low, info",
        reads=BOTH,
        when=(
            "a reduction depends on another of the same kind and shapes through elementwise ops only; not in a batch "
            "norm (TPU-BN-1), and not the maximum of a softmax. info: several reductions of one tensor run in parallel"
        ),
        advice="reduce x and x * x in one pass, and compute the second result from both",
        unless="E[x^2] - E[x]^2 loses precision where the mean is large beside the spread",
        says="Reductions of the same input and output shapes can run in parallel, in one fusion.",
    ),
    _tpu(
        "TPU-RD-3",
        "Factor on the result of a reduction",
        "medium, info",
        reads=BOTH,
        when="only a product with, or division by, a factor that is constant over the reduced dimensions reads a sum",
        advice="move the factor into the sum: sum(x) * y becomes sum(x * y)",
        unless="the result is small: the product inside is of all elements, and costs more than it saves",
        says="Reductions fuse elementwise ops into their input, not into their output.",
    ),
    _tpu(
        "TPU-BN-1",
        "Batch norm of many ops",
        "medium",
        reads=BOTH,
        when="Rsqrt of a variance over the batch plus a constant, which scales something, without a fused batch norm",
        advice="use tf.raw_ops.FusedBatchNormV3; BatchNormalization of Keras 3 has no such argument",
        unless="the input has not 4 or 5 dimensions, or is not of 16 or 32 bit; in inference the ops are few",
        says="Prefer tf.nn.fused_batch_norm to tf.nn.batch_normalization.",
    ),
    _tpu(
        "TPU-BN-2",
        "Batch norm of many ops, by its name",
        "low",
        reads=("names",),
        when="a scope named batch_norm or batchnorm, in any case, has an Rsqrt and no fused batch norm",
        advice="lint the SavedModel or graph, which tells (TPU-BN-1)",
        unless="the name misleads, or the compiler fuses the ops",
        says="Prefer tf.nn.fused_batch_norm to tf.nn.batch_normalization.",
    ),
    _tpu(
        "TPU-OP-1",
        "Op that is not supported",
        "high",
        needs="ops of a graph, and a list of supported ones (--supported-ops FILE)",
        when="an op is not in the list that is given",
        advice="replace it, or run it on the host",
        unless="the list is of another version, or the op runs on the host",
        says="There is a complete list of the TensorFlow ops that Cloud TPU supports.",
    ),
)
