"""The recommenders. Each takes items and gives one vector per position; see
:mod:`lastitem.models.registry`.
"""
