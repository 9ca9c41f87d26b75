"""DuoRec (Qiu et al., WSDM 2022): SASRec with two contrastive terms on the vector of
the whole input.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from lastitem.arrays import Ints
from lastitem.data.sequences import Sequences
from lastitem.models import settings
from lastitem.models.sasrec import SASRec


class DuoRec(SASRec):
    """SASRec's encoder; its training adds InfoNCE between each input and two others."""

    Settings = settings.DuoRec

    def auxiliary_loss(
        self,
        sequences: Sequences,
        index: Ints,
        read: Callable[[Sequences], Tensor],
        generator: torch.Generator,
    ) -> Tensor | None:
        """Weighted InfoNCE between the vectors of the sequences' inputs and those of
        two partners each (Section 4).

        The input of a sequence is all but its last item, which is its target.
        Unsupervised partner: the same input with other dropout. Supervised partner: the
        input of a training prefix with the same target. A term of weight 0 is not
        computed.
        """
        own = self.settings
        if not (own.unsupervised_weight or own.supervised_weight):
            return None
        inputs = sequences.select(index)
        anchor = read(inputs)
        loss = anchor.new_zeros(())
        if own.unsupervised_weight:
            loss = loss + own.unsupervised_weight * info_nce(anchor, read(inputs), own.temperature)
        if own.supervised_weight:
            partner = read(sequences.draw_same_target(index, generator))
            loss = loss + own.supervised_weight * info_nce(anchor, partner, own.temperature)
        return loss


def info_nce(first: Tensor, second: Tensor, temperature: float) -> Tensor:
    """Mean over the 2B vectors of −log softmax of their partner's similarity among that
    of the 2B − 1 others.

    The similarity is the dot product, divided by ``temperature`` (DuoRec, Qiu et al.,
    WSDM 2022, equation 9): vector i of one side has vector i of the other as its
    positive and the remaining 2B − 2 of the batch as negatives.

    Parameters
    ----------
    first, second : [B, d].
    """
    vectors = torch.cat((first, second))
    place = torch.arange(len(vectors), device=vectors.device)
    similarity = vectors @ vectors.T / temperature
    similarity = similarity.masked_fill(place == place[:, None], -torch.inf)
    return functional.cross_entropy(similarity, place.roll(len(first)))
