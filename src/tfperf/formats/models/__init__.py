"""Readers of models: graphs, checkpoints, SavedModels and Keras files."""
