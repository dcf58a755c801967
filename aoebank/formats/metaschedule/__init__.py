"""Databases of TVM's MetaSchedule."""
