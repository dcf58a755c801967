"""Normalisations: by statistics of the network, of neighbours, or of the tensor itself."""
