"""Profiling for Keras: `from tfperf.keras import ProfileCallback`."""

from tfperf.capture.keras import ProfileCallback

__all__ = ["ProfileCallback"]
