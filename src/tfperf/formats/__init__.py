"""File formats: profiles (XSpace) and compiled programs (HLO), read and written."""
