"""Where capturing and analysis meet: profile jobs and scripts, then report what came and, if asked to, analyze it."""
