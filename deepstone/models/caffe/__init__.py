"""Caffe networks: reads a `.prototxt` into a graph, and writes a graph as one."""
