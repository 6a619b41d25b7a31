"""Mog: DP-MoG, a mixture of Gaussians fitted by private expectation maximisation."""

from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np

from sfumato.checks import instance
from sfumato.encoding.layout import Layout
from sfumato.fitting.mixture_em import EmSettings, Noise, fit_mixture
from sfumato.fitting.scaling import ScalingShare, buy_scaling
from sfumato.models.flows.bijection import Affine
from sfumato.models.mixture import GaussianMixture
from sfumato.privacy import Curator, Relation


@dataclass(frozen=True, kw_only=True)
class Mog:
    """DP-MoG: a mixture of Gaussians with full covariances, fitted by expectation maximisation over noisy sums.

    Guarantees: (epsilon, delta) for one unit; exact likelihood of continuous rows.
    Cost: three Gaussian sums for locations and scales (``scaling``, 4 % of the budget; None buys none), then ``rounds``
    Gaussian sums of equal noise for all that is left. ``noise="laplace"`` asks Laplace sums in their place, whose noise
    grows with the number of features.
    Reference: Park, Foulds, Choudhary, Welling 2017, "DP-EM: Differentially Private Expectation Maximization"; the
    baseline of Waites and Cummings 2021.

    >>> Mog(components=3).relation.value
    'add-or-remove-one'
    """

    name: ClassVar[str] = "mog"
    title: ClassVar[str] = "DP-MoG: mixture of Gaussians by private expectation maximisation"
    reference: ClassVar[str] = "Park, Foulds, Choudhary, Welling 2017 (AISTATS)"
    can: ClassVar[tuple[str, ...]] = ("sample", "log_prob")

    components: int = EmSettings.components
    rounds: int = EmSettings.rounds
    reach: float = EmSettings.reach
    floor: float = EmSettings.floor
    noise: Noise = EmSettings.noise
    scaling: ScalingShare | None = ScalingShare()

    def __post_init__(self) -> None:
        self.em()
        if self.scaling is not None:
            instance(ScalingShare, scaling=self.scaling)

    def em(self) -> EmSettings:
        """The part of the settings that expectation maximisation needs; they are checked there."""
        return EmSettings(
            components=self.components, rounds=self.rounds, reach=self.reach, floor=self.floor, noise=self.noise
        )

    @property
    def relation(self) -> Relation:
        return Relation.ADD_OR_REMOVE_ONE

    def settings(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def trials(cls) -> tuple[Self, ...]:
        """Without and with bought scales, and with Laplace noise."""
        tiny = cls(components=2, rounds=2)
        return (replace(tiny, rounds=1, scaling=None), tiny, replace(tiny, rounds=1, scaling=None, noise="laplace"))

    def fit(self, curator: Curator, layout: Layout) -> GaussianMixture:
        num_features = layout.num_features
        location, scale = np.zeros(num_features), np.ones(num_features)
        if self.scaling is not None:
            location, scale = buy_scaling(curator, num_features, self.scaling)
        mixture = fit_mixture(
            curator,
            self.em(),
            Affine(jnp.asarray(location, jnp.float32), jnp.asarray(scale, jnp.float32)),
            num_features,
            share=None,
            discrete=any(feature.size is not None for feature in layout.features),
            key=curator.start_key(),
        )
        return mixture.moved(np.diag(scale), location)
