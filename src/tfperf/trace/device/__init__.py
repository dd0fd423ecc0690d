"""Devices: their clocks, kernels, copies, collectives and peaks."""
