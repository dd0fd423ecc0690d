"""tf.data: pipelines and the work of their stages."""
