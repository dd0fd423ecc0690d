"""What the words in reports, files and options mean: `tfperf explain`."""
