"""Activation start: private shifts and scales for the activation normalisation of a flow, layer by layer (DP-NF-INIT).

Each layer is asked where rows arrive and how far apart, given all layers before it, through the noisy sum; shift and
scale are read off the answer. That is algorithm 4 of the DP-NF paper but for what does not hold there:

- *Sensitivity of the deviation.* One row moves a standard deviation by as much as c / sqrt(n) (n equal values, one of
  them moved by c), and not in proportion to 1 / n as it moves a mean. Here only sums of bounded entries are noised, and
  the rest is post-processing.
- *Number of rows.* Means divide by n, which is private where rows may be added or removed. Here a row also adds a one,
  and the noisy sum of ones is what is divided by.
- *Features.* The printed noise is that of one number a layer; its composition runs over the 2 K means and deviations
  of K layers, but not over the d features of each. Here a layer's d places, d distances and its one are a single vector
  with one joint bound, sqrt(1 + 2 d).
- *Composition.* The printed scale is advanced composition without its second term, which holds for small epsilon only.
  Here each layer is one Gaussian sum in the ledger, composed with all else by its accountants, whatever epsilon.
- *Scales below zero.* Noise can turn a printed scale negative. Here scales are kept above a public floor.

A flow whose networks start at the identity sends standardised rows to every layer after the first. They are asked all
the same, as printed; what they cost is stated.

Reference: Waites and Cummings 2021, appendix B.1; Salimans and Kingma 2016 (the start from a batch of rows).
"""

from dataclasses import dataclass

import jax.numpy as jnp

from sfumato.checks import between, whole
from sfumato.fitting.scaling import ScalingShare, buy_scaling
from sfumato.models.flows.bijection import ActNorm, Chain
from sfumato.models.flows.flow import MaskedAutoregressiveFlow
from sfumato.privacy import Curator


@dataclass(frozen=True, kw_only=True)
class ActivationStart:
    """How much of the budget goes to the start of all normalisation layers together, over how many rounds each."""

    share: float = 0.04
    rounds: int = 1

    def __post_init__(self) -> None:
        between(1e-6, 0.9, share=self.share)
        whole(1, rounds=self.rounds)


def with_activations(
    flow: MaskedAutoregressiveFlow, settings: ActivationStart, curator: Curator
) -> MaskedAutoregressiveFlow:
    """The flow with its normalisation layers started so that rows leave each about standardised.

    Cost: ``rounds`` Gaussian sums a layer, ``share`` of the budget together. Sensitivity: as of ``scaling``.
    """
    parts = list(flow.blocks.parts)
    places = [place for place, part in enumerate(parts) if isinstance(part, ActNorm)]
    each = ScalingShare(share=settings.share / max(1, len(places)), rounds=settings.rounds)
    for number, place in enumerate(places, start=1):
        before = Chain((flow.scaling, *parts[:place]))
        what = f"activation normalisation {number} of {len(places)}"
        location, scale = buy_scaling(curator, flow.shape.num_features, each, view=before, what=what)
        parts[place] = ActNorm(jnp.asarray(location, jnp.float32), jnp.log(jnp.asarray(scale, jnp.float32)))
    return MaskedAutoregressiveFlow(flow.scaling, Chain(tuple(parts)), flow.shape, flow.base)
