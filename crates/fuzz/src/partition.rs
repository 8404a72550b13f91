//! The hash of keys is compared with another implementation, and sets of partitions with a plain set.

use std::collections::BTreeSet;

use keylane::partition::{Partition, PartitionSet};
use twox_hash::XxHash3_64;

pub(crate) fn run(data: &[u8]) {
    let key = String::from_utf8_lossy(data);
    let expected = XxHash3_64::oneshot(key.as_bytes()) % 256;
    assert_eq!(u64::from(Partition::of(&key).number()), expected, "the partition of {key:?}");

    let numbers: BTreeSet<u8> = data.iter().copied().collect();
    let set: PartitionSet = numbers.iter().filter_map(|number| Partition::new(i64::from(*number))).collect();
    assert!(set.iter().map(Partition::number).eq(numbers.iter().copied()));
    assert_eq!(set.len(), numbers.len());
    assert_eq!(written(&set.to_string()), numbers, "{set}");
    let rest = PartitionSet::ALL.without(set);
    assert!(rest.len() + set.len() == 256 && rest.union(set) == PartitionSet::ALL);
    for (at, byte) in set.to_bytes().into_iter().enumerate() {
        let expected = (0..8).filter(|bit| numbers.contains(&((at * 8 + bit) as u8)));
        assert_eq!(byte, expected.fold(0, |byte, bit| byte | 1 << bit), "byte {at} of {set}");
    }
}

/// The numbers in a text such as `0-41,77`.
fn written(text: &str) -> BTreeSet<u8> {
    let ranges = text.split(',').filter(|range| !range.is_empty());
    let number = |text: &str| text.parse::<u8>().expect("a number of a partition");
    ranges
        .flat_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            number(first)..=number(last)
        })
        .collect()
}
