"""What an advice is: words for each API, and how much of a cost the change takes away."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from tfperf.sections.diagnosis.program import Api

GUIDE = "https://www.tensorflow.org/guide"
API = "https://www.tensorflow.org/api_docs/python/tf"
NVIDIA = "https://docs.nvidia.com/deeplearning/performance"


class Advice(Struct, frozen=True, kw_only=True):
    """A change that takes a share of a cost away: from `least` to `most` of it, on this assumption."""

    texts: Mapping[Api, str]
    """APIs without a text of their own are not given the advice."""
    least: float
    most: float
    assumption: str
    url: str
    urls: Mapping[Api, str] = {}
    """Pages for single APIs."""
    is_per_examples: bool = False
    """As that of the action."""
    on_tpus: Mapping[Api, str] | None = None
    """The texts for jobs on TPUs, where they are others."""

    def text(self, api: Api, *, is_tpu: bool) -> str | None:
        """Return what to change; None where the advice is of no use."""
        return (self.texts if self.on_tpus is None or not is_tpu else self.on_tpus).get(api)


def everywhere(text: str) -> dict[Api, str]:
    """Return a text for every API."""
    return {"keras": text, "tensorflow": text, "jax": text}


def in_tensorflow(text: str) -> dict[Api, str]:
    """Return a text for both APIs of TensorFlow."""
    return {"keras": text, "tensorflow": text}
