"""Attacks on the software itself: canaries through the real doors, and record-play. Needs no private rows."""
