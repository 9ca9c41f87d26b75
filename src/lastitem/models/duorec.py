"""DuoRec (Qiu et al., WSDM 2022): SASRec with two contrastive terms on the vector of
the whole input.
"""

from __future__ import annotations

from lastitem.models.sasrec import SASRec


class DuoRec(SASRec):
    """SASRec's encoder; its training adds InfoNCE between each input and two others
    (see ``training.contrastive_loss``).

    Unsupervised: a second pass of the same input, with other dropout. Supervised:
    another training input with the same target.

    Attributes
    ----------
    temperature : divides the dot products.
    unsupervised_weight, supervised_weight : factors of the two terms.
    """

    def __init__(
        self,
        items: int,
        *,
        maximum_length: int = 200,
        hidden_size: int = 64,
        blocks: int = 2,
        heads: int = 2,
        dropout: float = 0.3,
        block_order: str = "post",
        temperature: float = 1.0,
        unsupervised_weight: float = 0.1,
        supervised_weight: float = 0.1,
    ) -> None:
        super().__init__(
            items,
            maximum_length=maximum_length,
            hidden_size=hidden_size,
            blocks=blocks,
            heads=heads,
            dropout=dropout,
            block_order=block_order,
        )
        self.temperature = temperature
        self.unsupervised_weight, self.supervised_weight = unsupervised_weight, supervised_weight
