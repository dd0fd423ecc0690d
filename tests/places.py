"""Where the project, its samples and the shared traces are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
SHARED = ROOT.parent / "shared"
"""Test input next to the project. It is not part of the project, and may be absent."""
TRACES = SHARED / "traces"
"""Traces of other people's jobs."""
