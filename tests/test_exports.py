"""The public API is what `tfperf.__all__` lists, no more and no less."""

from __future__ import annotations

import pytest

import tfperf

PUBLIC = [
    "CaptureError",
    "Captured",
    "HostAnalysis",
    "OutputError",
    "Sampled",
    "TfperfError",
    "Trace",
    "TraceFormatError",
    "TraceNotFoundError",
    "__version__",
    "check",
    "diff",
    "keras",
    "load",
    "profile",
    "sample",
    "serve",
    "sql",
    "start",
    "step",
    "stop",
    "write_timeline",
]


def test_public_names() -> None:
    assert tfperf.__all__ == PUBLIC == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_name_is_there_and_says_what_it_is(name: str) -> None:
    found = getattr(tfperf, name)
    assert isinstance(found, str) or found.__doc__


def test_errors_share_one_base() -> None:
    errors = [getattr(tfperf, name) for name in PUBLIC if name.endswith("Error")]
    assert all(issubclass(error, tfperf.TfperfError) for error in errors)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'anything_else'"):
        tfperf.anything_else  # noqa: B018
