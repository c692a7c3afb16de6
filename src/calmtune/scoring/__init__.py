"""Running a model over data and keeping what it said."""
