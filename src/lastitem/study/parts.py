"""Names under which the decomposition files what it finds; light, so that tables need
not load torch.
"""

from __future__ import annotations

#: The parts whose mixing ratios are taken, from the attention alone to what leaves the
#: normalization.
PARTS = ("Attn", "AttnRes", "AttnResLN")
#: The layer under which the whole stack is filed, and what the parts that are head
#: shares are called.
WHOLE_STACK, HEAD_SHARE = 0, "share of head "
