"""The types of all measurements and conclusions, and their one codec.

    record.py       Record: one run (Draft: before the store has given it an id)
    findings.py     Finding: a result that is not a run; its content by kind: layers.py, convolutions.py, memory.py,
                    ceilings.py, and a line for each in findings.Content
    chart.py  statement.py  claim.py                       conclusions
    quantity.py  doubt.py  environment.py  parts.py        building blocks
    refusal.py      error messages for invalid files
    view.py         the fields of a run, listed once, for the terminal, CSV, data frames and the page
    codec.py        bytes and JSON to objects and back; the only place where JSON is checked
    identity.py     names of jobs, runs and tasks            redact.py   a record without private names

How to use it:

    record = codec.as_record(parse_json(data))  # RefusedInputError names the mistake and its place
    finding = codec.as_finding(content)         # `finding.content` is a LayerTable, ConvolutionLab, MemoryUse, Ceilings
    record.to_json()                            # dictionaries and lists, for `--json`
    codec.encode(record)                        # the one text that is hashed and stored

A value that may be absent has the type `Quantity | Absent` (written `OrAbsent[Quantity]` in a definition). Ask with
`isinstance(value, Absent)`, and take `value.reason`. A key that early records lack is None. A `Quantity` has `median`,
`low`, `high` and `n`; if it has no interval, `no_interval` says why, and its ends are infinite. Make one with
`Quantity.of(...)` or `Quantity.without_interval(...)`. Objects are frozen: `msgspec.structs.replace` makes a changed
copy, and `Part.like` one of another type with the same fields.

This module imports nothing, and neither should a command that needs no result: msgspec takes 25 ms to import.
"""
