"""Pure functions of the public schema: a table to features or codes, and back."""

from sfumato.encoding.codes import decode_codes, domain_sizes, encode_codes
from sfumato.encoding.features import Cells, decode_features, encode_features
from sfumato.encoding.layout import Feature, Layout, layout_of
from sfumato.encoding.places import canonicalise

__all__ = [
    "Cells",
    "Feature",
    "Layout",
    "canonicalise",
    "decode_codes",
    "decode_features",
    "domain_sizes",
    "encode_codes",
    "encode_features",
    "layout_of",
]
