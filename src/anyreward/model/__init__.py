"""F, B and pi_z: networks, tables, losses and the distributions of z."""

from anyreward.model.encoding import Encoder
from anyreward.model.features import FeatureMap, feature_map
from anyreward.model.latent import ZMixture
from anyreward.model.losses import boltzmann, expected_forward, fb_loss, orthonormality_loss
from anyreward.model.model import Model
from anyreward.model.networks import Backward, Forward

__all__ = [
    "Backward",
    "Encoder",
    "FeatureMap",
    "Forward",
    "Model",
    "ZMixture",
    "boltzmann",
    "expected_forward",
    "fb_loss",
    "feature_map",
    "orthonormality_loss",
]
