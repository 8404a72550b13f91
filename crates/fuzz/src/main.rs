//! The fuzzer of one target, which `KEYLANE_FUZZ_TARGET` names; `dev/fuzz` builds and runs it.

#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
mod engine {
    use std::{env, process, sync::LazyLock};

    static TARGET: LazyLock<keylane_fuzz::Target> = LazyLock::new(|| {
        let name = env::var("KEYLANE_FUZZ_TARGET").unwrap_or_default();
        keylane_fuzz::target(&name).unwrap_or_else(|| {
            eprintln!("KEYLANE_FUZZ_TARGET is {name:?}, which is no target: dev/fuzz sets it");
            process::exit(2)
        })
    });

    libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.run)(data));
}

/// Lists the targets.
#[cfg(not(fuzzing))]
#[allow(clippy::print_stdout, reason = "the answer")]
fn main() {
    for target in keylane_fuzz::TARGETS {
        println!("{}", target.name);
    }
}
