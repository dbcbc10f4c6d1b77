"""F, B and pi_z: networks, losses and the sampling of z."""

from anyreward.representation.encoding import Encoder
from anyreward.representation.fb import Representation, make_representation
from anyreward.representation.features import FeatureMap, feature_map
from anyreward.representation.losses import boltzmann, expected_forward, fb_loss, orthonormality_loss
from anyreward.representation.networks import Backward, Forward

__all__ = [
    "Backward",
    "Encoder",
    "FeatureMap",
    "Forward",
    "Representation",
    "boltzmann",
    "expected_forward",
    "fb_loss",
    "feature_map",
    "make_representation",
    "orthonormality_loss",
]
