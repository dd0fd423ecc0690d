"""TensorFlow imports this where it can, for sparse arrays of NumPy. Jobs of tests have none."""

raise ImportError("a job of a test needs no SciPy")
