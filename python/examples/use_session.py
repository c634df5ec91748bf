"""Uses the sandbox of a worker for files and commands, at once in several of them: python3 use_session.py WORKER FILE…"""

import asyncio
import sys

from corral import AsyncCorral, ToolRefused


async def words_in(corral: AsyncCorral, worker: str, path: str) -> str:
    async with corral.session(worker) as session:
        try:
            text = await session.read_file(path)
        except ToolRefused as refusal:
            return f"{path}: {refusal.message}"
        counted = await session.exec("wc -w", stdin=text, check=True)
        return f"{path}: {counted.stdout.strip()} words"


async def main(worker: str, paths: list[str]) -> None:
    async with AsyncCorral() as corral:
        for line in await asyncio.gather(*(words_in(corral, worker, path) for path in paths)):
            print(line)


asyncio.run(main(sys.argv[1], sys.argv[2:]))
