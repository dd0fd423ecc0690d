"""tfperf in a notebook: results as HTML, plots, and the magic `%%tfperf`."""
