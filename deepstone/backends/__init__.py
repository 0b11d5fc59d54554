"""Backends run a layer graph on a framework. Every folder has the same structure; `registry` names them."""
