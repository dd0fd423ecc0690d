"""Whole reports of the reference, to the letter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_reference_text import REFERENCE, reference_model

from tfperf.tfprof.options import options_from
from tfperf.tfprof.reference_report import reference_report
from tfperf.tfprof.views import View


def reports(name: str) -> list[Path]:
    found = sorted((REFERENCE / name).glob("*.opts.json"))
    return [path for path in found if json.loads(path.read_text())["output"].startswith(("stdout", "file"))]
