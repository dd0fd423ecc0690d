from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module", params=["ptars", "protobuf"])
def decoder_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """The decoder that reads profiles while a test runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFPERF_DECODER", request.param)
        yield request.param
