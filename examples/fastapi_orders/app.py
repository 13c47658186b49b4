"""An endpoint that sends each order as a message: `uvicorn app:app`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from order import BOOTSTRAP, TOPIC, Order

import zhumq
import zhumq.aio
from zhumq.client.errors import ClientError

# An order that is answered with 503 is not sent later.
SETTINGS = {"message.timeout.ms": 4000}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One producer for the whole process."""
    async with zhumq.aio.Producer(
        BOOTSTRAP, value=zhumq.Json(Order), key=zhumq.Text(), settings=SETTINGS
    ) as producer:
        app.state.producer = producer
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def create_order(order: Order, request: Request) -> dict[str, int]:
    """Orders of a customer have the same key: they are packed in their order."""
    try:
        sent = await request.app.state.producer.send(TOPIC, order, key=order.customer)
    except ClientError as error:
        raise HTTPException(503, "orders are not taken at the moment") from error
    return {"partition": sent.partition, "offset": sent.offset}
