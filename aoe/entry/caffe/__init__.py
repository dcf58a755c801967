"""The Caffe entry (`--framework=0`): from prototxt and caffemodel to ONNX, without Caffe."""
