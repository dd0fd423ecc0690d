"""Captures of running jobs, from outside or inside. Only this package imports tensorflow, jax or grpc."""
