"""Steps: detection, and attribution of their time to categories."""
