"""An order and the mail about it, in one transaction on a sqlite3 connection: one file for both."""

import sqlite3

from holdfast import Handle, Holdfast

app = Holdfast("sqlite:///shop.db")


@app.task(queue="mail")
def confirm(order: int) -> str:
    return f"order {order} is confirmed"


def place_order(connection: sqlite3.Connection, item: str) -> Handle[str]:
    with connection:  # commits at its end, rolls back when something is raised
        connection.execute("BEGIN IMMEDIATE")
        order = connection.execute("INSERT INTO orders (item) VALUES (?)", [item]).lastrowid or 0
        handle = confirm.options(conn=connection).enqueue_sync(order)
        if item == "moon":
            raise ValueError("we do not sell the moon")  # neither the order nor the job was ever there
    return handle  # both are there, and a worker notices


def main() -> None:
    app.stats_sync()  # creates the file where there is none
    connection = sqlite3.connect("shop.db", isolation_level=None)
    connection.execute("CREATE TABLE IF NOT EXISTS orders (id integer PRIMARY KEY, item text)")
    handle = place_order(connection, "lamp")
    try:
        place_order(connection, "moon")
    except ValueError as error:
        print(error)
    print("orders:", connection.execute("SELECT count(*) FROM orders").fetchall()[0][0])
    print("job:", handle.state_sync().value, "of", app.stats_sync()["live"])
    connection.close()
    app.close_sync()


if __name__ == "__main__":
    main()
