"""Caffe networks: a `.prototxt` read to a graph, and a graph written as one."""
