//! Transcript records as they are stored: with a checksum behind them, since nothing chains them as commits are.

use sha2::{Digest, Sha256};

use crate::TranscriptName;

/// Enough against rot; whoever means harm can rewrite the checksum as well.
const CHECKSUM_BYTES: usize = 8;

/// Returns what is stored of a record. Its place is part of the checksum, so that no record is taken for another.
pub(super) fn seal(transcript: &TranscriptName, number: u64, bytes: &[u8]) -> Vec<u8> {
    [bytes, &checksum(transcript, number, bytes)].concat()
}

/// Returns the record again; nothing if it is not what was stored there.
pub(super) fn unseal(
    transcript: &TranscriptName,
    number: u64,
    mut stored: Vec<u8>,
) -> Option<Vec<u8>> {
    let (bytes, recorded) = stored.split_last_chunk::<CHECKSUM_BYTES>()?;
    let sound = checksum(transcript, number, bytes) == *recorded;
    stored.truncate(stored.len() - CHECKSUM_BYTES);
    sound.then_some(stored)
}

/// Returns what is stored as record 0 when those up to `up_to` are forgotten.
pub(super) fn seal_forgotten(transcript: &TranscriptName, up_to: u64) -> Vec<u8> {
    seal(transcript, 0, &up_to.to_be_bytes())
}

/// Returns up to which number records are forgotten; nothing if that is damaged.
pub(super) fn forgotten(transcript: &TranscriptName, stored: Vec<u8>) -> Option<u64> {
    unseal(transcript, 0, stored)?.try_into().ok().map(u64::from_be_bytes)
}

fn checksum(transcript: &TranscriptName, number: u64, bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let digest = Sha256::new()
        .chain_update(transcript.as_str())
        .chain_update([0])
        .chain_update(number.to_be_bytes())
        .chain_update(bytes)
        .finalize();
    std::array::from_fn(|i| digest[i])
}
