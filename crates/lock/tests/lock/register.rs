//! A register in a file. It compares tokens, as each resource behind a lock should.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

/// Knows nothing of the database that the lock is in.
pub(crate) struct Register(PathBuf);

impl Register {
    pub(crate) fn at(file: &Path) -> Self {
        File::options().create(true).append(true).open(file).unwrap();
        Self(file.to_owned())
    }

    /// The highest token that it has seen.
    pub(crate) fn fence(&self) -> i64 {
        self.change(|fence, value| (fence, value))[0]
    }

    /// The value, unless it has seen a higher token.
    pub(crate) fn read(&self, token: i64) -> Option<i64> {
        let [fence, value] = self.change(|fence, value| (fence.max(token), value));
        (fence == token).then_some(value)
    }

    /// Whether the value was written: not after it has seen a higher token.
    pub(crate) fn write(&self, token: i64, value: i64) -> bool {
        let write = |fence: i64, old| if fence <= token { (token, value) } else { (fence, old) };
        self.change(write) == [token, value]
    }

    /// Replaces the fence and the value; what they are then. The file is locked meanwhile.
    fn change(&self, change: impl FnOnce(i64, i64) -> (i64, i64)) -> [i64; 2] {
        let file = File::options().read(true).write(true).open(&self.0).unwrap();
        file.lock().unwrap();
        let mut bytes = [0; 16];
        // An empty file is a register that nobody has written to.
        let length = file.read_at(&mut bytes, 0).unwrap();
        assert!(length == 0 || length == bytes.len(), "{length}");
        let [fence, value] = [0, 8].map(|at| i64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()));
        let (fence, value) = change(fence, value);
        file.write_all_at(&[fence.to_le_bytes(), value.to_le_bytes()].concat(), 0).unwrap();
        [fence, value]
    }
}

#[test]
fn a_register_refuses_a_token_that_is_lower_than_one_it_has_seen() {
    let file = std::env::temp_dir().join(format!("keylane-lock-register-{}", std::process::id()));
    let register = Register::at(&file);
    assert_eq!((register.fence(), register.read(5)), (0, Some(0)));
    assert!(register.write(5, -7) && register.write(5, -8));
    assert_eq!((register.read(9), register.fence()), (Some(-8), 9));
    assert!(!register.write(5, 1));
    assert_eq!((register.read(5), register.read(9)), (None, Some(-8)));
    std::fs::remove_file(file).unwrap();
}
