"""Models and interventions as their readers know them."""

from lastitem.study.interventions import known

DISPLAY_NAMES = {
    "sasrec": "SASRec",
    "sasrec-pre": "SASRec (pre)",
    "gru4rec": "GRU4Rec",
    "bert4rec": "BERT4Rec",
    "bsarec": "BSARec",
    "duorec": "DuoRec",
    "last-item": "Last item alone",
    "markov": "Markov chain",
    "item-knn": "Item kNN, all items",
    "item-knn-chosen": "Item kNN, newest items",
    "item-knn-1": "Item kNN, last item",
    "popularity": "Popularity",
}


def shown_name(model: str) -> str:
    """A model's name as its readers know it."""
    return DISPLAY_NAMES.get(model, model)


def shown_intervention(name: str) -> str:
    """An intervention's name as its readers know it."""
    return known(name).shown
