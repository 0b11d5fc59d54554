"""Setups: the axes along which runs differ, which combinations make sense, what was asked against what was done."""
