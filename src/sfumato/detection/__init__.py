"""Detection: anomalies by the noisy vote of members that were trained on disjoint parts of a private table (DP-AD).

Members are trained without privacy. They are as private as the rows, live in a folder for their owner alone, and are
never released; only noisy answers leave, each of them paid from a budget that is kept on disk.
"""

from sfumato.detection.detector import Answers, Detector
from sfumato.detection.flows import FlowMembers
from sfumato.detection.mixtures import MixtureMembers

__all__ = ["Answers", "Detector", "FlowMembers", "MixtureMembers"]
