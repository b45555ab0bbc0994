"""One process of the demo: an agent whose tool leaves a line in a ledger. Prints each saved event."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from agentor.agent import Agentor
from agentor.engine.events import Event
from agentor.engine.store import FileStore
from agentor.tools import ToolContext, function_tool

TASK = "Order A-1042 is due. Look it up, charge it, and say what you did."


def build(store: Path, ledger: Path, model: str, base_url: str | None) -> Agentor:
    """The demo's agent: it prints every event once that is saved."""

    @function_tool
    def look_up_order(order: str) -> dict[str, object]:
        """Look an order up.

        Args:
            order: The order's number.
        """
        return {"order": order, "status": "due", "amount_eur": 129}

    @function_tool(on_crash="fail")
    def charge(order: str, amount_eur: int, ctx: ToolContext) -> str:
        """Charge the customer's card. It must happen once.

        Args:
            order: The order's number.
            amount_eur: Whole euros.
        """
        with ledger.open("a") as book:
            book.write(f"{order} {amount_eur} EUR  key {ctx.idempotency_key}\n")
        return f"Receipt {ctx.idempotency_key[:8]}."

    def show(event: Event) -> None:
        print(event.to_json(), flush=True)

    return Agentor(
        "clerk",
        "You handle payments. Use the tools, one after the other.",
        model,
        [look_up_order, charge],
        store=FileStore(store),
        base_url=base_url,
        api_key="demo" if base_url else None,
        tracer=show,
    )


async def work(options: argparse.Namespace) -> None:
    """Run, resume or fork, as the options say."""
    agent = build(options.store, options.ledger, options.model, options.base_url)
    if options.act == "run":
        async for _ in agent.astream(TASK, run_id=options.run_id):
            pass
    elif options.act == "resume":
        await agent.aresume(options.run_id)
    else:
        await agent.afork(options.run_id, options.input, fork_id=options.fork_id)


def main() -> None:
    """Read the options that the demo's parent process gives."""
    parser = argparse.ArgumentParser()
    parser.add_argument("act", choices=["run", "resume", "fork"])
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--base-url")
    parser.add_argument("--run-id", required=True)
    parser.add_argument("--fork-id")
    parser.add_argument("--input")
    asyncio.run(work(parser.parse_args()))


if __name__ == "__main__":
    main()
