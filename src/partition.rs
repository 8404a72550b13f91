//! Partitions: the 256 fixed units of ownership, and the hash that maps a key to one of them.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

/// The number of partitions. It is part of the stored data and never changes.
pub const PARTITION_COUNT: usize = 256;

/// The name of the hash, as stored in `outbox_meta` beside the partition count.
pub const PARTITION_HASH: &str = "xxh3_64";

/// One of the 256 partitions. A value of the type is always in range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u8);

impl Partition {
    /// Partition 0.
    pub(crate) const FIRST: Self = Self(0);

    /// The partition of a record key: `xxh3_64(key bytes, seed 0) % 256`.
    ///
    /// The result never changes: golden vectors in the tests pin it, and so does `outbox_partition_of` in
    /// SQL.
    ///
    /// ```
    /// assert_eq!(keylane::partition::Partition::of("order-1").number(), 118);
    /// ```
    pub fn of(key: &str) -> Self {
        Self((xxh3_64(key.as_bytes()) % PARTITION_COUNT as u64) as u8)
    }

    /// The partition with this number, or `None` above 255.
    pub fn new(number: i64) -> Option<Self> {
        u8::try_from(number).ok().map(Self)
    }

    /// The number, 0 to 255.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The index in an array of [`PARTITION_COUNT`] entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// All partitions, in order.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// A set of partitions: 256 bits, cheap to copy.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct PartitionSet([u64; 4]);

impl PartitionSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; 4]);
    /// All 256 partitions.
    pub const ALL: Self = Self([u64::MAX; 4]);

    /// Adds a partition.
    pub fn insert(&mut self, partition: Partition) {
        self.0[partition.index() / 64] |= 1 << (partition.index() % 64);
    }

    /// Removes a partition.
    pub fn remove(&mut self, partition: Partition) {
        self.0[partition.index() / 64] &= !(1 << (partition.index() % 64));
    }

    /// Whether the partition is in the set.
    pub fn contains(&self, partition: Partition) -> bool {
        self.0[partition.index() / 64] & (1 << (partition.index() % 64)) != 0
    }

    /// The number of partitions in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// One bit per partition. The lowest bit of the first byte is partition 0.
    pub fn to_bytes(&self) -> [u8; PARTITION_COUNT / 8] {
        let mut bytes = [0; PARTITION_COUNT / 8];
        for (eight, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            eight.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The partitions, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Partition> + '_ {
        let words = [0, 64, 128, 192].into_iter().zip(self.0);
        words.flat_map(|(first, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as u8)?;
                word &= word - 1;
                Some(Partition(first + bit))
            })
        })
    }

    /// The partitions of either set.
    #[must_use]
    pub fn union(&self, other: Self) -> Self {
        let mut both = *self;
        both.0.iter_mut().zip(other.0).for_each(|(word, added)| *word |= added);
        both
    }

    /// The partitions of this set that are not in `other`.
    #[must_use]
    pub fn without(&self, other: Self) -> Self {
        let mut rest = *self;
        rest.0.iter_mut().zip(other.0).for_each(|(word, taken)| *word &= !taken);
        rest
    }
}

impl FromIterator<Partition> for PartitionSet {
    fn from_iter<I: IntoIterator<Item = Partition>>(partitions: I) -> Self {
        let mut set = Self::EMPTY;
        partitions.into_iter().for_each(|partition| set.insert(partition));
        set
    }
}

/// Ranges, as in `0-41,77`.
impl fmt::Display for PartitionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut numbers = self.iter().map(Partition::number).peekable();
        let mut separator = "";
        while let Some(first) = numbers.next() {
            let mut last = first;
            while let Some(next) = numbers.next_if(|next| Some(*next) == last.checked_add(1)) {
                last = next;
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for PartitionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_the_golden_vectors() {
        let vectors = include_str!("../tests/golden/partition.csv");
        let mut checked = 0;
        for line in vectors.lines().filter(|line| !line.starts_with('#')) {
            let (hex, number) = line.rsplit_once(',').unwrap();
            let key: Vec<u8> = (0..hex.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
                .collect();
            let key = String::from_utf8(key).unwrap();
            assert_eq!(Partition::of(&key).number().to_string(), number, "key {key:?}");
            checked += 1;
        }
        assert!(checked >= 20, "only {checked} vectors");
    }

    #[test]
    fn a_set_prints_as_ranges() {
        let set: PartitionSet = [0, 1, 2, 77, 254, 255].into_iter().filter_map(Partition::new).collect();
        assert_eq!(set.to_string(), "0-2,77,254-255");
        assert_eq!(set.len(), 6);
        assert_eq!(PartitionSet::ALL.to_string(), "0-255");
        assert_eq!(PartitionSet::EMPTY.to_string(), "");
    }

    #[test]
    fn without_takes_the_difference() {
        let evens: PartitionSet = Partition::all().filter(|p| p.number() % 2 == 0).collect();
        let odds = PartitionSet::ALL.without(evens);
        assert_eq!(odds.len(), 128);
        assert!(odds.iter().all(|p| !evens.contains(p)));
    }

    #[test]
    fn a_set_lists_its_partitions_ascending() {
        let set =
            |numbers: &[i64]| numbers.iter().copied().filter_map(Partition::new).collect::<PartitionSet>();
        let (some, others) = (set(&[255, 64, 0, 63]), set(&[1, 64, 191, 192]));
        let numbers = |set: PartitionSet| set.iter().map(Partition::number).collect::<Vec<_>>();
        assert_eq!(numbers(some), [0, 63, 64, 255]);
        assert_eq!(numbers(some.union(others)), [0, 1, 63, 64, 191, 192, 255]);
        assert!(PartitionSet::ALL.iter().eq(Partition::all()));
        assert_eq!(PartitionSet::EMPTY.iter().next(), None);
    }
}
