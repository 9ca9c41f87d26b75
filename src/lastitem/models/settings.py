"""The architectures by name, and what each can be set to; loads nothing heavy."""

from dataclasses import dataclass

from lastitem.errors import InputError
from lastitem.study.settings import setting, setting_of


@dataclass(frozen=True)
class NoSettings:
    """Nothing can be set."""


@dataclass(frozen=True)
class Neural:
    """What every model here that is trained by gradient can be set to."""

    maximum_length: int = setting(
        200,
        "Maximum sequence length: newest items an input may hold (BERT4Rec's mask is one).",
        minimum=2,
    )
    hidden_size: int = setting(64, "Size d of every vector.", minimum=1)
    dropout: float = setting(
        0.2,
        "Probability of dropping an element, wherever the architecture drops.",
        minimum=0,
        exclusiveMaximum=1,
    )


@dataclass(frozen=True)
class Transformer(Neural):
    """What those made of attention blocks can be set to."""

    blocks: int = setting(2, "Attention blocks on top of each other.", minimum=1)
    heads: int = setting(2, "Attention heads of each block; must divide hidden_size.", minimum=1)

    def __post_init__(self) -> None:
        if self.hidden_size % self.heads:
            raise InputError(
                f"hidden_size {self.hidden_size} is not a multiple of heads {self.heads}"
            )


@dataclass(frozen=True)
class SASRec(Transformer):
    """Of :class:`lastitem.models.sasrec.SASRec`."""

    block_order: str = setting(
        "post",
        "post: LN behind each residual; pre: as published in 2018.",
        enum=["post", "pre"],
    )


@dataclass(frozen=True)
class DuoRec(SASRec):
    """Of :class:`lastitem.models.duorec.DuoRec`."""

    dropout: float = setting_of(Neural, "dropout", 0.3)
    temperature: float = setting(
        1.0, "Divides the similarities of the contrastive terms.", exclusiveMinimum=0
    )
    unsupervised_weight: float = setting(
        0.1, "Factor of the term with the same input under other dropout.", minimum=0
    )
    supervised_weight: float = setting(
        0.1, "Factor of the term with another input of the same target.", minimum=0
    )


@dataclass(frozen=True)
class GRU4Rec(Neural):
    """Of :class:`lastitem.models.gru4rec.GRU4Rec`."""

    layers: int = setting(1, "GRU layers on top of each other.", minimum=1)


@dataclass(frozen=True)
class BERT4Rec(Transformer):
    """Of :class:`lastitem.models.bert4rec.BERT4Rec`."""

    mask_probability: float = setting(
        0.2, "Share of items masked in training.", exclusiveMinimum=0, exclusiveMaximum=1
    )


@dataclass(frozen=True)
class BSARec(Transformer):
    """Of :class:`lastitem.models.bsarec.BSARec`; its length is fixed, not a maximum."""

    maximum_length: int = setting(
        50, "Length of every input, to which the filter's frequencies refer.", minimum=2
    )
    heads: int = setting_of(Transformer, "heads", 1)
    dropout: float = setting_of(Neural, "dropout", 0.5)
    filter_share: float = setting(
        0.7, "α, share of the filter beside attention.", minimum=0, maximum=1
    )
    filter_cutoff: int = setting(
        5, "c; the filter keeps the first ⌊c/2⌋ + 1 frequencies.", minimum=1
    )


@dataclass(frozen=True)
class LastItem(Neural):
    """Of :class:`lastitem.models.last_item.LastItem`."""

    blocks: int = setting(2, "Feed-forward blocks on top of each other.", minimum=1)


@dataclass(frozen=True)
class ItemKNN:
    """Of :class:`lastitem.models.item_knn.ItemKNN`."""

    newest: int = setting(0, "Newest items of the input that are read; 0: all.", minimum=0)


#: Name in the config → import path of the class, and its settings.
ARCHITECTURES: dict[str, tuple[str, type]] = {
    "sasrec": ("lastitem.models.sasrec:SASRec", SASRec),
    "gru4rec": ("lastitem.models.gru4rec:GRU4Rec", GRU4Rec),
    "bert4rec": ("lastitem.models.bert4rec:BERT4Rec", BERT4Rec),
    "bsarec": ("lastitem.models.bsarec:BSARec", BSARec),
    "duorec": ("lastitem.models.duorec:DuoRec", DuoRec),
    "last-item": ("lastitem.models.last_item:LastItem", LastItem),
    "popularity": ("lastitem.models.popularity:Popularity", NoSettings),
    "markov": ("lastitem.models.markov:Markov", NoSettings),
    "item-knn": ("lastitem.models.item_knn:ItemKNN", ItemKNN),
}


def import_path(architecture: str) -> str:
    """``package.module:Class`` of an architecture, which may be named so itself."""
    return ARCHITECTURES.get(architecture, (architecture,))[0]
