use keylane::{HandlerError, Record, outbox_handler};

#[outbox_handler(id = "a", every, retry)]
async fn alone(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "b", every, retry(max_retries = 3))]
async fn kindless(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "c", every, retry(fixed))]
async fn delayless(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "d", every, retry(linear, initial = "1s"))]
async fn incrementless(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "e", every, retry(fixed, delay = "1s", multiplier = 2.0))]
async fn of_another_kind(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "f", every, retry(exponential, jitter = 10))]
async fn shaken(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "g", every, retry(exponential, multiplier = 0.5))]
async fn shrinking(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "h", every, retry(exponential, max_retries = -1))]
async fn negative(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "i", every, retry(exponential, retry_on = "timeout"))]
async fn no_list(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

#[outbox_handler(id = "j", every, retry(exponential, retry_on = ["timeout"], never_on = ["timeout"]))]
async fn contradiction(_: &Record) -> Result<(), HandlerError> {
    Ok(())
}

fn main() {}
