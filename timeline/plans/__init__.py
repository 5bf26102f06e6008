"""Jobs on the timeline: plans of several kinds, with their instants, claims, reservations and time-outs."""
