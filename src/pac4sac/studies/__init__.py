"""Studies: named sets of runs that answer one question, planned as cohorts and trained on this
machine or on a cluster."""
