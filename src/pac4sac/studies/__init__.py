"""Studies: named sets of runs that answer one question, planned into cohorts, trained here or on a
cluster."""
