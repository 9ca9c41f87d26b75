"""From a raw log to the parts of a split: reading, filtering, splitting,
and batches.
"""
