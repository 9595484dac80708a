//! Bytes of the links between launch agents.

use shmem_launch::frame::{Frame, FrameReader, Launch};

/// However the link is cut, the same frames come out; a frame that is understood is encoded to
/// bytes that mean the same.
///
/// # Panics
/// If not.
pub fn launch_frame(data: &[u8]) {
    let run = |cut: usize| {
        let mut reader = FrameReader::default();
        let mut seen = Vec::new();
        for mut piece in data.chunks(cut.max(1)) {
            loop {
                match reader.next_frame(&mut piece) {
                    Ok(Some(content)) => seen.push(Ok(content.to_vec())),
                    Ok(None) => break,
                    Err(_) => {
                        seen.push(Err(()));
                        return seen;
                    }
                }
            }
        }
        seen
    };
    let whole = run(data.len());
    let cut = usize::from(data.first().copied().unwrap_or(0)) % 16 + 1;
    assert_eq!(whole, run(cut));
    for content in whole.into_iter().flatten().chain([data.to_vec()]) {
        if let Ok(frame) = Frame::decode(&content) {
            let mut out = Vec::new();
            frame.encode(&mut out);
            assert_eq!(
                format!("{:?}", Frame::decode(&out[4..])),
                format!("Ok({frame:?})")
            );
        }
        if let Ok(launch) = Launch::decode(&content) {
            let again = Launch::decode(&launch.encode()).expect("it was encoded here");
            assert_eq!(format!("{again:?}"), format!("{launch:?}"));
        }
    }
}

/// Some frames of fixed form, one after the other.
#[must_use]
pub fn launch_frame_seeds() -> Vec<Vec<u8>> {
    let frames = [
        Frame::Go,
        Frame::Credit(70_000),
        Frame::Stdin(b"input"),
        Frame::Signal(15),
        Frame::Stop { grace_ns: 1 << 30 },
        Frame::Done(&[]),
        Frame::Pmi(b"a message"),
    ];
    let mut stream = Vec::new();
    let mut seeds = Vec::new();
    for frame in frames {
        let start = stream.len();
        frame.encode(&mut stream);
        seeds.push(stream[start..].to_vec());
    }
    seeds.push(stream);
    seeds
}
