//! The producers of the model, whose transactions cross.

use keylane_checker::{Status, What};
use uuid::Uuid;

use crate::model::{HANDLERS, KEYS, Model, Row, partition};

/// An open transaction.
pub(crate) struct Transaction {
    number: u64,
    /// Its rows by their ids.
    rows: Vec<(i64, Row)>,
}

impl Model {
    /// Schedules an event in one of at most three transactions.
    pub(crate) fn write(&mut self) {
        let place = self.choices.below(3);
        if place >= self.transactions.len() {
            let number = self.call();
            self.transactions.push(Transaction { number, rows: Vec::new() });
        }
        let place = place.min(self.transactions.len() - 1);
        let (tx, call) = (self.transactions[place].number, self.call());
        self.next_event += 1;
        let event = Uuid::from_u128(self.next_event);
        let (key, delayed) = (self.choices.below(KEYS.len()), self.choices.below(8) == 0);
        let handlers = match self.choices.below(4) {
            0 => vec![0, 1, 2],
            one => vec![one - 1],
        };
        let names = handlers.iter().map(|handler| HANDLERS[*handler].to_owned()).collect();
        let key_name = KEYS[key].to_owned();
        self.tell("writer", What::Scheduling { call, tx, event, key: key_name, handlers: names, delayed });
        match self.choices.below(20) {
            0 => return self.tell("writer", What::ScheduleFailed { call }),
            1 => {
                self.tell("writer", What::Scheduled { call });
                return self.tell("writer", What::Undone { tx, events: vec![event] });
            }
            _ => self.tell("writer", What::Scheduled { call }),
        }
        let (status, due) = match delayed {
            true => (Status::Delayed, self.now + 50_000),
            false => (Status::Pending, 0),
        };
        for handler in handlers {
            let row = Row { event, key, handler, status, attempts: 0, due, fresh: delayed };
            self.transactions[place].rows.push((self.next_id, row));
            self.next_id += 1;
        }
    }

    /// Ends a transaction, mostly by a commit.
    pub(crate) fn end_transaction(&mut self) {
        if self.transactions.is_empty() {
            return;
        }
        let place = self.choices.below(self.transactions.len());
        let Transaction { number: tx, rows } = self.transactions.swap_remove(place);
        let fate = self.choices.below(10);
        if fate == 0 {
            return self.tell("writer", What::RolledBack { tx });
        }
        self.tell("writer", What::Committing { tx });
        if fate == 1 {
            return self.tell("writer", What::CommitUnknown { tx });
        }
        for (id, row) in rows {
            let (event, handler, key) =
                (row.event, HANDLERS[row.handler].to_owned(), KEYS[row.key].to_owned());
            let (partition, status) = (partition(row.key), row.status);
            self.tell("database", What::Stored { id, event, handler, key, partition, status });
            self.database.rows.insert(id, row);
        }
        self.tell("writer", if fate == 2 { What::CommitUnknown { tx } } else { What::Committed { tx } });
    }

    pub(crate) fn roll_back_all(&mut self) {
        for transaction in std::mem::take(&mut self.transactions) {
            self.tell("writer", What::RolledBack { tx: transaction.number });
        }
    }
}
