"""Measure how much a sequential recommender leans on the last item of a user's history.

The modules follow the data: :mod:`~lastitem.interactions` (logs, core filter), :mod:`~lastitem.splits`,
:mod:`~lastitem.sequences` (batches), :mod:`~lastitem.models`, :mod:`~lastitem.training`, :mod:`~lastitem.ranking`
and the readings of a ranking: :mod:`~lastitem.metrics`, :mod:`~lastitem.shuffling`, :mod:`~lastitem.decomposition`,
:mod:`~lastitem.rescaling`. Nothing heavy is imported here: the workflow imports this package while it parses.
"""

__version__ = "0.1.0"
