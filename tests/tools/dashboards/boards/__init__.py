"""The boards, in the order in which an operator needs them."""

from tests.tools.dashboards.boards import fleet, hosts, money, queues, reliability, tokens, tools, turns

BOARDS = (
    fleet.BOARD,
    money.BOARD,
    tokens.BOARD,
    turns.BOARD,
    queues.BOARD,
    reliability.BOARD,
    tools.BOARD,
    hosts.BOARD,
)
