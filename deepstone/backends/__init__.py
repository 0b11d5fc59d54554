"""Backends: how each framework runs a layer graph. Every folder has the same shape; `registry` names them."""
