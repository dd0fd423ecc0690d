"""Rules about graphs of TensorFlow: a file for what they are about, `gpu.py` for those of GPUs."""
