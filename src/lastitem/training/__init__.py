"""Training a model: batches, losses, one update, the loop around it, and what a killed
one goes on from.
"""
