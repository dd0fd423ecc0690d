"""Python runs this when it starts: a tenth of the time that TensorFlow's import takes would be collecting garbage."""

import gc

gc.set_threshold(500_000, 20, 100)
