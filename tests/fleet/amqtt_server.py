"""A broker in a process of its own, as it leaves sockets to the garbage collector, which is an error in the tests'."""

import asyncio
import sys

from amqtt.broker import Broker


async def serve(port: str) -> None:
    listener = {"type": "tcp", "bind": f"127.0.0.1:{port}"}
    plugins = {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}}
    await Broker({"listeners": {"default": listener}, "plugins": plugins}).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
