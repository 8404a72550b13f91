// Takes payments: the order's row and the event change in one transaction, or neither of them.

import pg from "pg";

const client = new pg.Client({ connectionString: process.env.DATABASE_URL, options: process.env.PGOPTIONS });
await client.connect();

async function pay(order) {
  await client.query("BEGIN");
  try {
    await client.query("UPDATE orders SET paid = true WHERE id = $1", [order]);
    const event = JSON.stringify({ id: order, cents: 100 * order });
    const headers = JSON.stringify({ trace_id: `trace-${order}` });
    await client.query("SELECT outbox_schedule('order.paid', $1, $2, $3)", [`order-${order}`, event, headers]);
    await client.query("COMMIT");
    console.log(`node: order ${order} is paid`);
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

for (const order of [1, 2, 3]) await pay(order);
try {
  await client.query("SELECT outbox_schedule('order.piad', 'order-1', '{}')");
} catch (error) {
  console.log(`node: ${error.message}`);
}
await client.end();
