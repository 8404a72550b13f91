"""Takes orders: each order and its event are written in one transaction, or neither of them."""

import os

import psycopg
from psycopg.types.json import Jsonb

CUSTOMERS = ["ada", "grace", "edsger"]


class OutOfStock(Exception):
    pass


def place(conn, order, customer, stock=1):
    with conn.transaction():
        conn.execute("INSERT INTO orders (id, customer) VALUES (%s, %s)", (order, customer))
        conn.execute(
            "SELECT outbox_schedule('order.placed', %s, %s, %s)",
            (f"order-{order}", Jsonb({"id": order, "customer": customer}), Jsonb({"trace_id": f"trace-{order}"})),
        )
        if stock == 0:
            raise OutOfStock(order)


def main():
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        conn.execute("CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY, customer text NOT NULL, paid bool)")
        for order, customer in enumerate(CUSTOMERS, start=1):
            place(conn, order, customer)
            print(f"python: order {order} is placed")
        try:
            place(conn, 4, "nobody", stock=0)
        except OutOfStock:
            print("python: order 4 is rolled back, and its event with it")


main()
