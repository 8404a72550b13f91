//! Histories are read as they were written, also if a kill has cut them off. Other texts are refused.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use keylane_checker::{
    CallKind, Called, End, Event, Status, What,
    history::{HistoryError, line, read},
};
use proptest::prelude::*;
use uuid::Uuid;

/// A folder for one case alone.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("keylane-checker-{}-{number}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).expect("a file");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn uuid() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

fn called() -> impl Strategy<Value = Called> {
    let names = (any::<String>(), any::<String>());
    (any::<i64>(), uuid(), names, any::<u16>(), any::<i64>(), any::<u32>()).prop_map(
        |(id, event, (handler, key), partition, generation, attempt)| Called {
            id,
            event,
            handler,
            key,
            partition,
            generation,
            attempt,
        },
    )
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        Just(End::Ok),
        Just(End::Failed),
        Just(End::Permanent),
        Just(End::Unavailable),
        Just(End::Panicked),
        Just(End::TimedOut),
        Just(End::Refused),
        Just(End::Dropped),
    ]
}

fn kind() -> impl Strategy<Value = CallKind> {
    prop_oneof![Just(CallKind::Single), Just(CallKind::TransactionalBatch), Just(CallKind::Fallback)]
}

fn what() -> impl Strategy<Value = What> {
    let status = prop_oneof![Just(Status::Pending), Just(Status::Held), Just(Status::Gone)];
    let handlers = prop::collection::vec(any::<String>(), 0..3);
    let calls = (any::<u64>(), any::<String>(), kind(), prop::collection::vec(called(), 0..4));
    prop_oneof![
        (any::<u64>(), any::<u64>(), uuid(), any::<String>(), handlers, any::<bool>()).prop_map(
            |(call, tx, event, key, handlers, delayed)| What::Scheduling {
                call,
                tx,
                event,
                key,
                handlers,
                delayed
            }
        ),
        (any::<u64>(), prop::collection::vec(uuid(), 0..3))
            .prop_map(|(tx, events)| What::Undone { tx, events }),
        any::<u64>().prop_map(|tx| What::CommitUnknown { tx }),
        calls.prop_map(|(call, instance, kind, records)| What::CallBegan { call, instance, kind, records }),
        (any::<u64>(), prop::collection::vec(end(), 0..4))
            .prop_map(|(call, ends)| What::CallEnded { call, ends }),
        (any::<i64>(), status, any::<u32>(), any::<Option<String>>())
            .prop_map(|(id, status, attempts, by)| What::Changed { id, status, attempts, by }),
        (any::<String>(), any::<Option<String>>())
            .prop_map(|(fault, instance)| What::FaultBegan { fault, instance }),
        any::<String>().prop_map(|text| What::Logged { text }),
        Just(What::Settling),
        Just(What::Finished),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (any::<u64>(), any::<String>(), what());
    let event = event.prop_map(|(at, process, what)| Event { at, process, what });
    prop::collection::vec(event, 0..20)
}

fn lines(events: &[Event]) -> Vec<u8> {
    events.iter().flat_map(|event| line(event).expect("a line")).collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_in_the_order_of_time(one in events(), other in events()) {
        let folder = Folder::new();
        let files = [folder.write("one", &lines(&one)), folder.write("other", &lines(&other))];
        let mut wanted = [one, other].concat();
        wanted.sort_by_key(|event| event.at);
        prop_assert_eq!(read(files).expect("a history"), wanted);
    }

    #[test]
    fn a_file_that_is_cut_short_loses_its_last_line_at_most(events in events(), cut in any::<prop::sample::Index>()) {
        let folder = Folder::new();
        let bytes = lines(&events);
        let cut = cut.index(bytes.len() + 1);
        let whole = bytes[..cut].iter().filter(|byte| **byte == b'\n').count();
        let mut found = read([folder.write("cut", &bytes[..cut])]).expect("a history");
        let mut wanted = events[..whole].to_vec();
        // A line that lacks only its line end is whole.
        wanted.extend(events.get(whole).filter(|_| found.len() > whole).cloned());
        found.sort_by_key(|event| event.at);
        wanted.sort_by_key(|event| event.at);
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn garbage_is_told_with_its_line(events in events(), garbage in "[^\n\"0-9 \t\r]{1,20}") {
        let folder = Folder::new();
        let mut bytes = lines(&events);
        bytes.extend(garbage.as_bytes());
        bytes.push(b'\n');
        let path = folder.write("garbage", &bytes);
        match read([&path]) {
            Err(HistoryError::Line { path: of, line, .. }) => {
                prop_assert_eq!(of, path);
                prop_assert_eq!(line, events.len() + 1);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}

#[test]
fn an_unknown_field_is_no_event() {
    let folder = Folder::new();
    let path = folder.write("unknown", b"{\"at\":1,\"process\":\"p\",\"what\":\"settling\",\"when\":2}\n");
    assert!(matches!(read([path]), Err(HistoryError::Line { line: 1, .. })));
}
