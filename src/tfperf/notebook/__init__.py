"""tfperf in a notebook: results as HTML, pictures of them, and the magic `%%tfperf`."""
