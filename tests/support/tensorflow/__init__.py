"""TensorFlow models for tests, made by a Python that has TensorFlow."""
