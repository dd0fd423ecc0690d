"""Rules about compiled programs of XLA: a file for what they are about, named as in `graph_rules`."""
