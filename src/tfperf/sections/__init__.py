"""Sections: one folder per question, whole: what it reads, its analysis, its tables, its sentences."""
