"""What a model costs, by name scope, graph, op and line of code: the questions of TensorFlow 1's tfprof, answered.

A graph, what its runs recorded (RunMetadata), and a log of who built it are joined into one `Model`; a view arranges
its nodes, and an output shows them. TensorFlow is not needed.
"""
