"""Running jobs: samples from outside the job, and the live screen."""
