"""The threads that agentor owns: one for its event loop, one per store, one per sync tool call."""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from queue import SimpleQueue
from typing import Any, TypeVar  # Any: what a wrapped function takes and gives

from agentor.errors import WrongThread

T = TypeVar("T")
CLEANUP_S = 6.0  # a cancelled run may use 5 s to record what is under way
EXIT_S = 1.0


def in_thread(function: Callable[..., T], *args: object) -> asyncio.Future[T]:
    """Run a function on a daemon thread of its own, with the caller's context variables.

    Cancelling the future leaves the thread running; its outcome is dropped then. The default
    executor is not used: a few slow tools would fill it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def body() -> None:
        _deliver(loop, future, lambda: context.run(function, *args))

    threading.Thread(target=body, name="agentor-tool", daemon=True).start()
    return future


def _deliver(
    loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], function: Callable[[], Any]
) -> None:
    result: Any = None
    error: Exception | None = None
    try:
        result = function()
    except StopIteration as stop:  # asyncio futures refuse it
        error = RuntimeError(f"StopIteration: {stop}")
    except BaseException as raised:  # also SystemExit: it ends the call, not the process
        error = raised if isinstance(raised, Exception) else _as_exception(raised)
    try:
        loop.call_soon_threadsafe(_settle, future, result, error)
    except RuntimeError:
        return  # the loop is closed: nobody waits any more


def _as_exception(raised: BaseException) -> Exception:
    return RuntimeError(f"{type(raised).__name__}: {raised}")


def _settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class Worker:
    """One daemon thread that runs calls one at a time, in order. Made anew in a forked child.

    The thread ends with the worker, once the calls before are done.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._pid: int | None = None

    def __del__(self) -> None:
        self._queue.put(None)

    async def call(self, function: Callable[..., T], *args: object) -> T:
        """The outcome of `function(*args)`; it runs to its end also if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._start()
        self._queue.put(lambda: _deliver(loop, future, lambda: function(*args)))
        return await future

    def _start(self) -> None:
        if self._pid == os.getpid():
            return
        with self._lock:
            if self._pid != os.getpid():
                self._queue = SimpleQueue()  # a forked child has no thread that reads the old one
                self._pid = os.getpid()
                thread = threading.Thread(
                    target=_work, args=(self._queue,), name="agentor-store", daemon=True
                )
                thread.start()


def _work(queue: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := queue.get()) is not None:
        job()
        del job  # it holds its store, whose end may be the end of this thread's worker


class BackgroundLoop:
    """One event loop on a daemon thread that the process keeps, for sync callers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._inherited: list[asyncio.AbstractEventLoop | None] = []

    def run(self, work: Coroutine[Any, Any, T], *, method: str = "run", instead: str | None = None) -> T:
        """Run a coroutine there and wait for it. Ctrl-C, or a signal's handler that exits,
        cancels it, and waits for its cleanup.

        Args:
            method: What the caller called.
            instead: What it should call on the loop's own thread; None: its async twin.

        Raises:
            WrongThread: called on the loop's own thread, which would wait for itself.
        """
        if threading.current_thread() is self._thread:
            work.close()
            raise WrongThread(method, instead)
        loop, done = self._ensure(), Future[T]()
        tasks: list[asyncio.Task[T]] = []

        def start() -> None:
            tasks.append(loop.create_task(work))
            tasks[0].add_done_callback(lambda task: _hand_over(task, done))

        loop.call_soon_threadsafe(start)  # takes the caller's context variables along
        try:
            return done.result()
        except (KeyboardInterrupt, SystemExit) as interrupt:  # the latter from a handler of SIGTERM
            loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            _, late = wait([done], timeout=CLEANUP_S)
            if not late:
                for note in getattr(done.exception(), "__notes__", ()):
                    interrupt.add_note(note)
            raise

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        """The outcome of a coroutine that runs there, whichever loop awaits it.

        It runs to its end also if the caller is cancelled.
        """
        loop = self._ensure()
        if loop is asyncio.get_running_loop():
            return await asyncio.shield(loop.create_task(work))
        return await asyncio.shield(asyncio.wrap_future(self.start(work)))

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine there, and wait for nothing."""
        return asyncio.run_coroutine_threadsafe(work, self._ensure())

    def _ensure(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="agentor-loop", daemon=True
                )
                self._thread.start()
            return self._loop

    def forget(self) -> None:
        """In a forked child: the parent's loop and thread are not ours."""
        inherited = [*self._inherited, self._loop]
        self.__init__()  # type: ignore[misc]  # begins anew, lock included
        # Were it collected, it would take the parent's sockets out of the selector that both have.
        self._inherited = inherited

    def close(self) -> None:
        """Cancel what runs, and stop the loop, within a second."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or not thread.is_alive():
            return
        stopped = asyncio.run_coroutine_threadsafe(_cancel_all(), loop)
        try:
            stopped.result(EXIT_S)
        except TimeoutError:
            return  # a task that refuses to end dies with the process
        loop.call_soon_threadsafe(loop.stop)
        thread.join(EXIT_S)
        if not thread.is_alive():
            loop.close()


def _hand_over(task: asyncio.Task[T], done: Future[T]) -> None:
    try:
        done.set_result(task.result())
    except BaseException as error:  # a cancelled task raises its own error here, notes included
        done.set_exception(error)


async def _cancel_all() -> None:
    tasks = [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


background = BackgroundLoop()
atexit.register(background.close)
os.register_at_fork(after_in_child=background.forget)
