//! Transactional handlers that end the transaction of their completion, or begin another one instead.

use keylane::{
    HandlerError,
    memory::{MemoryConnection, MemoryPool, MemoryTransaction},
};
use keylane_checker::What;
use uuid::Uuid;

use crate::{
    fate::Stray,
    node::{Process, lock},
};

/// A transaction of the library that a handler has replaced by another, with its effects.
pub(crate) struct Kept {
    tx: MemoryTransaction,
    effects: Vec<(Uuid, String)>,
}

/// Misuses the transaction, with these effects written so far.
pub(crate) async fn stray(
    stray: Stray,
    process: &Process,
    pool: &MemoryPool,
    conn: &mut MemoryConnection,
    effects: Vec<(Uuid, String)>,
) -> Result<(), HandlerError> {
    if stray == Stray::LeavesOpen {
        std::mem::forget(conn.begin().await);
        process.note(What::Saw { what: "savepoint left open".to_owned() });
        return Ok(());
    }
    let mut tx = pool.begin().await.map_err(HandlerError::new)?;
    std::mem::swap(conn, &mut tx);
    process.note(What::Saw { what: "transaction replaced".to_owned() });
    let given = Kept { tx, effects };
    match stray {
        Stray::Commits => given.commit(process).await,
        Stray::Keeps => {
            let before = lock(&process.kept).replace(given);
            if let Some(before) = before {
                before.commit(process).await;
            }
        }
        Stray::RollsBack | Stray::LeavesOpen => drop(given),
    }
    Ok(())
}

impl Kept {
    async fn commit(self, process: &Process) {
        for (event, handler) in self.effects {
            process.note(What::EffectApart { event, handler });
        }
        // Whether the commit succeeds or not, each of the effects may exist.
        drop(self.tx.commit().await);
    }
}
