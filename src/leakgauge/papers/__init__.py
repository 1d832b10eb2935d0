"""Tables and figures of the papers. Their metric conventions live here and nowhere else."""
