"""Selectors and groupings of PromQL expressions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import promql_parser


def selectors(node: Any) -> Iterator[Any]:
    """Yield all series selectors below a node."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for child in _children(node):
        yield from selectors(child)


def groupings(node: Any) -> Iterator[tuple[list[str], Any]]:
    """Yield the labels of each grouping or matching below a node, with the node that has them."""
    modifier = getattr(node, "modifier", None)
    if isinstance(node, promql_parser.AggregateExpr) and modifier is not None:
        yield list(modifier.labels), node
    if isinstance(node, promql_parser.BinaryExpr) and modifier is not None and modifier.matching is not None:
        yield list(modifier.matching.labels), node
    for child in _children(node):
        yield from groupings(child)


def _children(node: Any) -> list[Any]:
    names = ("expr", "lhs", "rhs", "param", "vector_selector")
    found = [getattr(node, name, None) for name in names]
    return [child for child in (*found, *getattr(node, "args", ())) if child is not None]
