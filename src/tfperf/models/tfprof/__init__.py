"""tfprof: the cost of a model by name scope, graph, op and line of code. `tfperf.tfprof` has the public names."""

from __future__ import annotations

from tfperf.base.errors import TfperfError


class OptionError(TfperfError, ValueError):
    """An invalid option, or a step or output that the model or view does not have."""
