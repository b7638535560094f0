"""A shop: an order and the mail about it are written together, or neither is."""

import os
from uuid import UUID

from flask import Flask, abort, current_app
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, sessionmaker

from holdfast.flask import FlaskHoldfast

URL = os.environ.get("DATABASE_URL", "sqlite:///shop.db")  # one database, for orders and for jobs

jobs = FlaskHoldfast()
engine = create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))
new_session = sessionmaker(engine)


class Base(DeclarativeBase):
    """What the shop stores."""


class Order(Base):
    """An order, and the job that sends the mail about it."""

    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    mail: Mapped[UUID | None]


@jobs.task(queue="mail")
def send_mail(order: int, item: str) -> str:
    return f"mail about order {order} sent by {current_app.name}: {item}"


def create_app() -> Flask:
    app = Flask("shop")
    app.config["HOLDFAST_URL"] = URL
    jobs.init_app(app)
    Base.metadata.create_all(engine)

    @app.post("/orders/<item>")
    def create(item: str) -> dict[str, int]:
        with new_session.begin() as session:  # commits at its end, rolls back when something is raised
            order = Order(item=item)
            session.add(order)
            session.flush()
            mail = send_mail.options(conn=session).enqueue_sync(order.id, item)
            order.mail = mail.id
            if item == "coffee":
                abort(409)  # and neither the order nor the job was ever there
            return {"order": order.id}

    @app.get("/orders/<int:number>/mail")
    def mail(number: int) -> str:
        with new_session() as session:
            order = session.get(Order, number)
        if order is None or order.mail is None:
            abort(404)
        return str(jobs.job(order.mail).result_sync(timeout=10))

    @app.get("/jobs")
    def count() -> dict[str, int]:
        stats = jobs.stats_sync()
        return {"live": stats["live"], "succeeded": stats["succeeded"]}

    return app
