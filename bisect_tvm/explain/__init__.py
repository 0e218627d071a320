"""Why: the stage of TVM that is to blame, the evidence, and what the user can do, tried before it is told."""
