"""Modules: export, tune, and put back where they were."""
