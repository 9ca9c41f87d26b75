"""Reading a trained model: one ranking path, and the diagnostics that are readings of
it.
"""
