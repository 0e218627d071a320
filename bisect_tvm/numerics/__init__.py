"""How different two results are, and why: pure numpy."""
