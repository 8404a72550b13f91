#![deny(unused_must_use)]

use keylane::{Outbox, StartError, memory::Memory};

async fn delivers_nothing(outbox: &Outbox<Memory>) -> Result<(), StartError> {
    outbox.start().await?;
    Ok(())
}

fn main() {}
