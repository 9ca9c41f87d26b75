"""Shim."""

from lastitem.data.sequences import PADDING, Tile, pad, tiles

__all__ = ["PADDING", "Tile", "pad", "tiles"]
