"""An analysis: runs its sections for each host and puts the hosts together."""
