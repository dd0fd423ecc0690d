"""Profiling for Keras: `from tfperf.keras import ProfileCallback`."""

from tfperf.capture.keras_callback import ProfileCallback

__all__ = ["ProfileCallback"]
