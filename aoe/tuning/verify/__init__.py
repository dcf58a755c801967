"""`aoe verify`: whether the records of a bank still hold on this machine."""
