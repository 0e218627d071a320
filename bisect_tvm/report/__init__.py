"""The answer as data, and the ways of telling it."""
