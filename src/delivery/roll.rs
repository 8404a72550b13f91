//! Jitter without a generator.

use xxhash_rust::xxh3::xxh3_64;

/// The jitter of an attempt, from 0 to 1. It is a hash of the record and its failures, so each computation
/// gives the same number and no generator is needed.
pub(crate) fn roll(id: i64, failures: u32) -> f64 {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..].copy_from_slice(&failures.to_le_bytes());
    (xxh3_64(&bytes) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rolls_spread_over_the_unit_interval() {
        let rolls: Vec<f64> = (1..=1000).map(|id| roll(id, 1)).collect();
        assert!(rolls.iter().all(|roll| (0.0..1.0).contains(roll)));
        let mean = rolls.iter().sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "mean {mean}");
    }
}
