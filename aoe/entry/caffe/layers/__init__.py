"""One file for each group of Caffe layers; `registry.LAYERS` lists them all."""
