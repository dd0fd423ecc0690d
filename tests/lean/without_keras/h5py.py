"""TensorFlow imports this where it can, to save models of Keras."""

raise ImportError("this job needs no h5py")
