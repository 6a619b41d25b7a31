"""The metrics, one family a file, and the parts that they share."""
