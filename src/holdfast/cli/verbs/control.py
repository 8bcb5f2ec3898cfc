"""The verb that opens the control room."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.app import app


@app.command()
def serve(  # noqa: PLR0913, PLR0917 - each is a flag that a person types.
    runs: Annotated[
        Path, typer.Argument(help="Folder of run directories to follow; made if it is not there.")
    ] = Path("holdfast_runs"),
    store: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where all is kept: a path, or postgresql://…  [default: RUNS/.holdfast/store.sqlite]",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Where to listen; beyond this machine it needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any that is free.", min=0, max=65535)] = 8417,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with the token that guards and people show; else HOLDFAST_TOKEN; "
            "else one is made in RUNS/.holdfast/token."
        ),
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate, in PEM, with its chain.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key, in PEM.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Name or address under which a proxy makes it known. May repeat.")
    ] = None,
    webhook: Annotated[
        Path | None,
        typer.Option(
            metavar="URL-FILE", help="File with the address of a webhook that is told of incidents."
        ),
    ] = None,
    keep_days: Annotated[
        float | None, typer.Option(help="Forget what was not heard of for so many days.", min=0.01)
    ] = None,
    keep_gb: Annotated[
        float | None, typer.Option(help="Forget the oldest when the store is larger.", min=0.01)
    ] = None,
) -> None:
    """Open the control room: see all runs, who slows them and what it costs, and give them orders.

    Example: holdfast serve

    Example: holdfast serve /shared/holdfast_runs --keep-days 90

    Example: holdfast serve --host 0.0.0.0 --token-file token --tls-cert cert.pem --tls-key key.pem

    Example: holdfast serve --store postgresql://holdfast@db/holdfast --webhook slack.url
    """
    from holdfast.errors import MissingError

    try:
        from holdfast.serve.web.server import Request
        from holdfast.serve.web.server import serve as serve_runs
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "holdfast":
            raise
        raise MissingError(f"{error.name} is missing: pip install 'holdfast[serve]'") from None
    serve_runs(
        Request(
            runs=runs,
            host=host,
            port=port,
            store=store,
            token_file=token_file,
            tls_cert=tls_cert,
            tls_key=tls_key,
            allowed_hosts=allow_host or [],
            webhook_file=webhook,
            keep_days=keep_days,
            keep_gb=keep_gb,
        ),
        os.environ,
    )
