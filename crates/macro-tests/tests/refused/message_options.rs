use keylane_consumer::{HandlerError, Message, message_handler};

#[message_handler(group = "billing")]
async fn no_topic(_: &Message) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "")]
async fn empty_topic(_: &Message) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "orders", group = "")]
async fn empty_group(_: &Message) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "orders", retries = 3)]
async fn unknown(_: &Message) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = ORDERS)]
async fn no_text(_: &Message) -> Result<(), HandlerError> {
    Ok(())
}

#[message_handler(topic = "orders", topic = "bills")]
async fn twice(_: &Message) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
