"""What several processes add to the fields of a run: columns, and texts for people. No host is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from deepstone.absent import Absent
from deepstone.results.parallel import Bubbles, Parallel
from deepstone.results.quantity import Quantity
from deepstone.results.record import Record
from deepstone.units import bytes_, digits, percent, seconds

_MOST_SHOWN: Final = 8  # ranks

Columns: TypeAlias = "Mapping[str, str | int | float | Quantity]"


def parallel_of(record: Record) -> Parallel | None:
    return record.parallel if isinstance(record.parallel, Parallel) else None


def columns(record: Record) -> Columns | None:
    """Return one number or quantity per column; None where there is one process."""
    parallel = parallel_of(record)
    if parallel is None:
        return None
    found: dict[str, str | int | float | Quantity] = {
        "world": parallel.world,
        "nodes": parallel.nodes,
        "local_batch": parallel.local_batch,
        "launcher": parallel.launcher.name,
    }
    if not isinstance(parallel.rates, Absent):
        found["samples_per_s_per_process"] = parallel.rates.per_process
        found["samples_per_s_per_node"] = parallel.rates.per_node
    communication = parallel.communication
    if not isinstance(communication, Absent):
        found["exposed_s"] = communication.exposed_s
        if not isinstance(communication.waiting_s, Absent):
            found["longest_waiting_s"] = max(communication.waiting_s, key=lambda each: each.median)
        if not isinstance(communication.alone_s, Absent):
            found["exchange_alone_s"] = communication.alone_s
        if not isinstance(communication.hidden_share, Absent):
            found["hidden_share"] = communication.hidden_share
    if not isinstance(communication, Absent) and not isinstance(communication.account, Absent):
        found |= {f"account_{name}_s": part for name, part in communication.account.parts.items()}
    if not isinstance(parallel.wire, Absent):
        found["wire_sent_bytes"] = parallel.wire.sent_bytes
        found["wire_ratio"] = parallel.wire.ratio
    if parallel.skew is not None and not isinstance(parallel.skew, Absent):
        if not isinstance(parallel.skew.spread_s, Absent):
            found["skew_s"] = parallel.skew.spread_s
        found["clock_error_s"] = parallel.skew.error_s
    peaks = [rank.host_peak_bytes for rank in parallel.ranks if not isinstance(rank.host_peak_bytes, Absent)]
    if peaks:
        found["largest_host_peak_bytes"] = max(peaks)
        found["smallest_host_peak_bytes"] = min(peaks)
    return found


def processes_words(record: Record) -> str:
    """Return such as "4 on 2 nodes, started by srun; 16 images/s each (15.6 – 16.2), 32 a node"."""
    parallel = parallel_of(record)
    if parallel is None:
        return ""
    where = f" on {parallel.nodes} nodes" if parallel.nodes > 1 else ""
    found = f"{parallel.world}{where}, started by {parallel.launcher.name}"
    if isinstance(parallel.rates, Absent):
        return found
    node = f", {_with_span(parallel.rates.per_node, digits)} a node" if parallel.nodes > 1 else ""
    return f"{found}; {_with_span(parallel.rates.per_process, digits)} {record.workload.samples}/s each{node}"


def communication_words(record: Record) -> str:
    parallel = parallel_of(record)
    if parallel is None or isinstance(parallel.communication, Absent):
        return ""
    found = parallel.communication
    words = [f"exposed {_time(found.exposed_s)}"]
    if not isinstance(waiting := found.waiting_s, Absent):
        longest = max(range(len(waiting)), key=lambda rank: waiting[rank].median)
        words.append(f"rank {longest} waits {_time(waiting[longest])}")
    if not isinstance(found.alone_s, Absent):
        words.append(f"the exchange alone {_time(found.alone_s)}")
    if not isinstance(found.hidden_share, Absent):
        words.append(_hidden(found.hidden_share))
    if not isinstance(parallel.wire, Absent):
        sent, needed = bytes_(int(parallel.wire.sent_bytes)), bytes_(int(parallel.wire.needed_bytes))
        words.append(f"{sent} sent, {needed} needed")
    return " · ".join(words)


def _hidden(share: Quantity | float) -> str:
    """An interval that holds both nothing and all of it says nothing. Below nothing: an exchange is slower in a step
    than alone, since both compute."""
    if not isinstance(share, Quantity):
        return f"{_with_span(share, percent)} of it hidden"
    if not share.has_interval or (share.low <= 0 and share.high >= 1):
        return "how much of it is hidden is not resolved"
    if share.high <= 0:
        longer = f"{percent(-share.median)} ({percent(-share.high)} – {percent(-share.low)})"
        return f"none of it hidden: in a step it takes {longer} longer"
    if share.low <= 0:
        return f"at most {percent(share.high)} of it hidden"
    return f"{_with_span(share, percent)} of it hidden"


def _with_span(number: Quantity | float, shown: Callable[[float], str]) -> str:
    if not isinstance(number, Quantity):
        return shown(number)
    return f"{shown(number.median)} ({number.span_in_words(shown)})"


def account_words(record: Record) -> str:
    """Return what the time that several processes add to a step is made of."""
    parallel = parallel_of(record)
    if parallel is None or isinstance(parallel.communication, Absent):
        return ""
    account = parallel.communication.account
    if isinstance(account, Absent):
        return account.reason
    parts = [f"{name} {_time(part)}" for name, part in account.parts.items() if part.high > 0 or part.low < 0]
    return f"{_time(account.total_s)} to a step: {' · '.join(parts)}"


def pipeline_words(record: Record) -> str:
    """Return how long the stages of a pipeline wait, and what each of them has."""
    parallel = parallel_of(record)
    if parallel is None or not parallel.stages:
        return ""
    shares = {stage.stage: percent(stage.share) for stage in parallel.stages}  # several pipelines have the same ones
    words = [f"stages of {' + '.join(shares[stage] for stage in sorted(shares))} of the cost"]
    if isinstance(bubbles := parallel.bubbles, Bubbles):
        words.append(f"wait {_with_span(bubbles.share, percent)} of a step")
        words.append(f"{percent(bubbles.ideal_share)} with equal stages and no communication")
        words.append(f"{percent(bubbles.replayed_share.median)} with these and none")
        added = bubbles.exposed_s  # below zero where the replay of its passes is slower than the step itself
        words.append(f"communication adds {_time(added) if added.high > 0 else 'nothing that can be told'}")
    elif isinstance(bubbles, Absent):
        words.append(bubbles.reason)
    return " · ".join(words)


def memory_words(record: Record) -> str:
    """Return the memory that the steps of each rank take, and what the graph says that they need."""
    parallel = parallel_of(record)
    if parallel is None:
        return ""
    found: list[str] = []
    for rank in parallel.ranks:
        if rank.step_bytes is None or rank.predicted_bytes is None:
            return ""
        measured = "not known" if isinstance(rank.step_bytes, Absent) else bytes_(rank.step_bytes)
        predicted = "" if isinstance(rank.predicted_bytes, Absent) else f" ({bytes_(rank.predicted_bytes)} predicted)"
        found.append(f"{measured}{predicted}")
    more = f" · and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return " · ".join(found[:_MOST_SHOWN]) + more


def _time(quantity: Quantity) -> str:
    return (
        f"{seconds(quantity.median)} ({quantity.span_in_words(seconds)})"
        if quantity.is_resolved
        else quantity.time_in_words()
    )


def ranks_words(record: Record) -> str:
    """Return how far the ranks are apart, and the memory of each."""
    parallel = parallel_of(record)
    if parallel is None or not parallel.ranks:
        return ""
    words: list[str] = []
    if parallel.skew is not None and not isinstance(parallel.skew, Absent):
        spread = parallel.skew.spread_s
        words.append(f"end a step {spread.reason if isinstance(spread, Absent) else _time(spread)} apart")
    peaks = [rank.host_peak_bytes for rank in parallel.ranks]
    known = [peak for peak in peaks if not isinstance(peak, Absent)]
    if known:
        words.append(f"host peak {_span([bytes_(min(known)), bytes_(max(known))])}")
    threads = {rank.threads for rank in parallel.ranks}
    words.append(f"{_span([str(min(threads)), str(max(threads))])} {'thread' if threads == {1} else 'threads'} each")
    return " · ".join(words)


def _span(ends: list[str]) -> str:
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} – {ends[1]}"
