"""Sections: one folder per question, with its analysis, tables and texts."""
