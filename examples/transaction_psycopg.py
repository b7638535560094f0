"""Orders and the mails about them, in one transaction on a psycopg connection, from blocking code."""

import psycopg

from holdfast import Handle, Holdfast

app = Holdfast()  # on the database that HOLDFAST_URL names: the one in which the orders are


@app.task(queue="mail")
def confirm(order: int) -> str:
    return f"order {order} is confirmed"


def place_orders(connection: psycopg.Connection, items: list[str]) -> list[Handle[str]]:
    with connection.transaction():
        calls = []
        for item in items:
            row = connection.execute("INSERT INTO orders (item) VALUES (%s) RETURNING id", [item]).fetchone()
            calls.append(confirm.call(row[0] if row else 0))
        handles = app.enqueue_many_sync(calls, conn=connection)
        if "moon" in items:
            raise ValueError("we do not sell the moon")  # neither the orders nor the jobs were ever there
    return handles  # all are there, and a worker has been told


def main() -> None:
    with psycopg.connect(app.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id serial PRIMARY KEY, item text)")
        app.stats_sync()  # creates the schema of the jobs where there is none; in earnest: holdfast migrate
        handles = place_orders(connection, ["lamp", "chair"])
        try:
            place_orders(connection, ["rug", "moon"])
        except ValueError as error:
            print(error)
        print("orders:", connection.execute("SELECT count(*) FROM orders").fetchall()[0][0])
        print("jobs:", [handle.state_sync().value for handle in handles], "of", app.stats_sync()["live"])
    app.close_sync()


if __name__ == "__main__":
    main()
