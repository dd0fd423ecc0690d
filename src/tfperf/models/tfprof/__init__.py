"""tfprof: what a model costs, by name scope, graph, op and line of code. Its public names are in `tfperf.tfprof`."""

from __future__ import annotations

from tfperf.base.errors import TfperfError


class OptionError(TfperfError, ValueError):
    """What is asked of tfprof means nothing, or its model does not have it: an option, a step, an output of a view."""
