"""Steps: where they begin and end, and how their time is divided."""
