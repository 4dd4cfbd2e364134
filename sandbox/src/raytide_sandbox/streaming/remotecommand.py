"""Exec and attach: a client's streams to and from a container.

Input: an upgrade request and a running container. Runs the command (or joins the main process), copies its streams both
ways and ends with the status that carries the exit code. When the client disconnects, its command is killed. The
protocols are in remote_command_protocols.py; called by kubelet/server.py.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web

from raytide_sandbox.container_runtime.interface import (
    Container,
    ContainerRuntimeError,
    Exec,
    ExecConfig,
    ReadEnd,
    Runtime,
    WriteEnd,
)
from raytide_sandbox.streaming.logs import LogClock, LogOptions, read_log
from raytide_sandbox.streaming.remote_command_protocols import RemoteStreams, StreamRequest, open_streams

_LAST_OUTPUT_S: Final = 2.0
_CHUNK: Final = 32 * 1024


async def serve_exec(
    request: web.Request, wanted: StreamRequest, runtime: Runtime, container: Container
) -> web.StreamResponse:
    """Run a command in the container with the client's streams."""
    streams = await open_streams(request, wanted)
    config = ExecConfig(argv=wanted.command, has_stdin=wanted.has_stdin, is_tty=wanted.is_tty)
    try:
        command = await runtime.exec(container, config)
    except ContainerRuntimeError as error:
        await streams.finish(_internal_error(str(error)))
        return streams.response
    await streams.finish(await _run(command, streams))
    return streams.response


async def serve_attach(request: web.Request, wanted: StreamRequest, container: Container) -> web.StreamResponse:
    """Send what the main process writes from now on, and feed its standard input if it has one."""
    streams = await open_streams(request, wanted)
    output = read_log(
        container.config.log_path,
        LogOptions(is_following=True, tail_lines=0),
        LogClock(),
        may_grow=lambda: container.exit is None,
        now=lambda: datetime.fromtimestamp(0, UTC),
    )

    async def show() -> None:
        async for chunk in output:
            await streams.write("stdout", chunk)

    await _pump_until(show(), streams, container.stdin)
    await streams.finish(_SUCCESS)
    return streams.response


async def _run(command: Exec, streams: RemoteStreams) -> dict[str, Any]:
    outputs = [asyncio.create_task(_pump_output(command.stdout, "stdout", streams))]
    if command.stderr:
        outputs.append(asyncio.create_task(_pump_output(command.stderr, "stderr", streams)))

    async def end() -> None:
        await command.wait()
        await asyncio.wait(outputs, timeout=_LAST_OUTPUT_S)

    try:
        is_complete = await _pump_until(end(), streams, command.stdin)
        if not is_complete:
            command.kill()
        ended = await command.wait()
    finally:
        for task in outputs:
            task.cancel()
        await asyncio.gather(*outputs, return_exceptions=True)
    return _exit_status(ended.code)


async def _pump_until(work: Awaitable[None], streams: RemoteStreams, stdin: WriteEnd | None) -> bool:
    """Feed input and terminal sizes until the work is done; False if the client disconnected before."""
    done = asyncio.ensure_future(work)
    gone = asyncio.create_task(streams.wait_gone())
    feeding = [asyncio.create_task(_pump_input(streams, stdin)), asyncio.create_task(_pump_sizes(streams, stdin))]
    try:
        await asyncio.wait({done, gone}, return_when=asyncio.FIRST_COMPLETED)
        return done.done()
    finally:
        everything = [done, gone, *feeding]
        for task in everything:
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)


async def _pump_output(source: ReadEnd, name: str, streams: RemoteStreams) -> None:
    try:
        while chunk := await source.read(_CHUNK):
            await streams.write(name, chunk)
    except ConnectionError:
        source.close()


async def _pump_input(streams: RemoteStreams, stdin: WriteEnd | None) -> None:
    if stdin is None:
        return
    with contextlib.suppress(OSError):
        while chunk := await streams.read_stdin():
            await stdin.write(chunk)
    stdin.close()


async def _pump_sizes(streams: RemoteStreams, stdin: WriteEnd | None) -> None:
    while stdin is not None:
        columns, rows = await streams.next_size()
        stdin.resize(columns, rows)


# --- final status --------------------------------------------------------------------------------------------------
_SUCCESS: Final[dict[str, Any]] = {"metadata": {}, "status": "Success"}


def _exit_status(code: int) -> dict[str, Any]:
    if code == 0:
        return _SUCCESS
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def _internal_error(message: str) -> dict[str, Any]:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {message}",
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }
