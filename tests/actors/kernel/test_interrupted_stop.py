"""A system whose stop is interrupted twice ends all the same."""

from __future__ import annotations

import trio

from quiesce.actors.kernel import ActorSystem, TrioActor


class Slow(TrioActor):
    async def on_stop(self):
        await trio.sleep(1)


async def test_a_stop_that_is_interrupted_while_it_stops_now_leaves_no_dispatcher(monkeypatch):
    stop_all = ActorSystem._stop_all

    async def interrupted(self, *, now):
        if now:
            raise KeyboardInterrupt
        await stop_all(self, now=now)

    monkeypatch.setattr(ActorSystem, "_stop_all", interrupted)
    ended = None
    with trio.fail_after(5):
        try:
            async with ActorSystem() as system:
                await system.spawn(Slow)
        except BaseException as error:  # noqa: BLE001
            ended = error
    assert ended is not None
    assert isinstance(ended, KeyboardInterrupt) or ended.split(KeyboardInterrupt)[0]
