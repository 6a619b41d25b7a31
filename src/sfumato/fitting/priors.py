"""Priors: a mixture in place of the standard normal as the base of a flow, bought or public.

A flow of smooth maps cannot tear one bump into several; over a base that has them already, it need not. The mixture is
fitted to where the flow sends rows before it is trained, and the flow then bends what the mixture leaves.

Reference: Waites and Cummings 2021, appendix B.2; Papamakarios, Pavlakou, Murray 2017 (mixtures as bases).
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sfumato.checks import between
from sfumato.errors import ArgumentError
from sfumato.fitting.mixture_em import EmSettings, fit_mixture
from sfumato.models.flows.flow import MaskedAutoregressiveFlow
from sfumato.models.mixture import GaussianMixture
from sfumato.privacy import Curator


@dataclass(frozen=True, kw_only=True)
class MixturePrior(EmSettings):
    """A mixture fitted by private expectation maximisation, with a share of the budget of its own.

    >>> MixturePrior(components=5).share
    0.2
    """

    share: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        between(1e-6, 0.9, share=self.share)


@dataclass(frozen=True, kw_only=True)
class PublicMixture:
    """A mixture that is public: from the literature, or from rows that nobody needs to hide. It costs nothing.

    It is over the features of rows: normal quantiles of the place of a value between its public bounds
    (``models.cells``), before any scaling that is bought.
    """

    weights: tuple[float, ...]
    means: tuple[tuple[float, ...], ...]
    covariances: tuple[tuple[tuple[float, ...], ...], ...]

    def __post_init__(self) -> None:
        self.mixture()

    def mixture(self) -> GaussianMixture:
        """As a density."""
        try:
            return GaussianMixture.of(self.weights, self.means, self.covariances)
        except (ValueError, TypeError):
            raise ArgumentError("Expected weights, means and covariances of a mixture as numbers.") from None


def with_prior(
    flow: MaskedAutoregressiveFlow,
    prior: MixturePrior | PublicMixture,
    curator: Curator,
    *,
    discrete: bool,
    key: Array,
) -> MaskedAutoregressiveFlow:
    """A flow at its start over a mixture of where it sends rows.

    Cost: of a bought mixture ``rounds`` sums with the noise of its settings, ``share`` of the budget together; of a
    public one nothing.
    """
    num_features = flow.shape.num_features
    if isinstance(prior, MixturePrior):
        view = flow.to_base()
        return flow.over(fit_mixture(curator, prior, view, num_features, share=prior.share, discrete=discrete, key=key))
    public = prior.mixture()
    if public.num_features != num_features:
        raise ArgumentError(f"Expected a public mixture over {num_features} features, found {public.num_features}.")
    # Before training the networks shift and scale nothing, so that the way to the base is affine.
    middle = jnp.zeros(num_features, jnp.float32)
    forward = lambda features: flow.to_base().forward(features)[0]
    matrix, shift = jax.jacfwd(forward)(middle), forward(middle)
    return flow.over(public.moved(np.asarray(matrix, np.float64), np.asarray(shift, np.float64)))
