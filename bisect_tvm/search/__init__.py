"""Where the difference is: pure search, without torch or TVM."""
