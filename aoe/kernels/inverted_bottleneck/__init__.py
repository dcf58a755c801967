"""A convolution in groups and the pointwise one that makes its image, as one kernel."""
