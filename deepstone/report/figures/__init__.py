"""One file per figure: from a result's JSON to a neutral description of a picture."""
