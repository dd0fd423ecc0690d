"""What every room uses: arrays, units, errors, files, storage, patterns of names."""
