"""`holdfast server`: parsing; the work itself is in `serving`."""

from holdfast.cli.common import Yes
from holdfast.cli.output import OK
from holdfast.config import load


def server(
    app: str | None = None,
    /,
    *,
    url: str | None = None,
    host: str | None = None,
    port: int | None = None,
    open: Yes = False,  # noqa: A002  the name of the flag
    worker: Yes = False,
    prefix: str | None = None,
    secure_cookies: Yes = False,
    trusted_proxies: str | None = None,
    redact: str | None = None,
    key_rate: int | None = None,
    failure_rate: int | None = None,
    body_limit: str | None = None,
    longest_poll: str | None = None,
    page_timeout: str | None = None,
    log_format: str | None = None,
    log_level: str | None = None,
) -> int:
    """Serve a store over HTTP: to remote workers, to clients and to people.

    Example: holdfast server shop.jobs:app --port 7878

    Closed by default: whoever comes needs a key (`holdfast keys add`) or the admin secret (HOLDFAST_ADMIN_SECRET). On a
    loopback address it makes an admin secret for this run where there is neither. It does the housekeeping that workers do too,
    and fires the schedules of the app. Behind HTTPS use a proxy.

    Parameters
    ----------
    app
        MODULE:APP, where its schedules are to be fired from here, or its jobs run (--worker); else a store is enough.
    url
        The store, where no app is given. Else HOLDFAST_URL, else `url` in holdfast.toml or in [tool.holdfast].
    host
        The address to listen on; else 127.0.0.1.
    port
        The port; 0 is any that is free.
    open
        Let everybody in who reaches it: on a loopback address alone.
    worker
        Run the app's jobs in this process too.
    prefix
        The path that it is reached under, such as /jobs: behind a proxy that passes paths on as they are.
    secure_cookies
        Have browsers send the dashboard's cookies over HTTPS alone: behind a proxy that speaks it.
    trusted_proxies
        Addresses and networks of proxies, separated by commas, that are believed when they say for whom they ask, and
        whether by HTTPS; else none is.
    redact
        Names of fields of args and results that the dashboard never shows, separated by commas.
    key_rate
        Requests a second that one key may make, besides what keeps and ends leases; else 1000.
    failure_rate
        Refused keys and logins a minute from one address, after which it has to wait; else 10.
    body_limit
        How large a request may be, such as 8MB; else 2MiB, which is the least.
    longest_poll
        How long a claim may wait for jobs; else 30s.
    page_timeout
        How long a statement may take for a page; else 5s.
    log_format
        console or json; logs go to standard error.
    log_level
        debug, info, warning, error or critical.
    """
    found = load(
        {
            "app": app,
            "url": url,
            "host": host,
            "port": port,
            "prefix": prefix,
            "secure_cookies": secure_cookies or None,
            "trusted_proxies": trusted_proxies,
            "redact": redact,
            "key_rate": key_rate,
            "failure_rate": failure_rate,
            "body_limit": body_limit,
            "longest_poll": longest_poll,
            "page_timeout": page_timeout,
            "log_format": log_format,
            "log_level": log_level,
        }
    )
    from holdfast.cli.serving import run_server  # noqa: PLC0415  not needed for --help

    run_server(found, app=app, is_open=open, worker=worker)
    return OK
