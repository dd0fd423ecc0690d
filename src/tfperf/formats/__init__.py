"""Readers and writers of file formats: profiles (XSpace) and compiled programs (HLO)."""
