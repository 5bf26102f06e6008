"""Plans that are saved beside the versions: their instants, claims and reservations."""
