"""Trained agents seen and taken elsewhere: videos, ONNX, TensorBoard; and the machine they would be trained on."""
